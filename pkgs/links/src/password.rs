//! Link passwords: argon2id hashes (RFC 9106) with the OWASP minimum parameters.
