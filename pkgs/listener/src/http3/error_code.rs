//! Error codes, as quinn-proto's type.

use quinn_proto::VarInt;

/// Both libraries limit them to 62 bits (RFC 9000, section 16).
pub(crate) fn varint(code: u64) -> VarInt {
    VarInt::from_u64(code).unwrap_or(VarInt::MAX)
}
