//! Countries of addresses, from a file in MaxMind DB format (GeoLite2-Country, DB-IP and others).

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::Path;

use maxminddb::{MaxMindDbError, PathElement, Reader};

use crate::model::country::Country;

/// The largest file, in bytes, since it is held in memory. Files with all cities have some 100 MiB.
const MAX_BYTES: u64 = 512 << 20;

/// How many networks are searched for a country before the file is refused.
const LOOKED_AT: usize = 10_000;

/// The path of the country's code in a network's record.
const CODE: [PathElement<'static>; 2] = [PathElement::Key("country"), PathElement::Key("iso_code")];

/// Why a file is refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is longer than [`MAX_BYTES`].
    #[error("is longer than {} MiB", MAX_BYTES >> 20)]
    TooLong,
    /// It is not a MaxMind database.
    #[error("is no MaxMind DB that can be read: {0}")]
    Format(#[from] MaxMindDbError),
    /// It is a MaxMind database without countries.
    #[error("is a MaxMind DB of {0}, which tells no countries")]
    NoCountries(String),
}

/// The file's content.
pub struct GeoIp(Reader<Vec<u8>>);

impl GeoIp {
    /// Reads a whole file, once.
    ///
    /// # Errors
    /// When it cannot be read, or has no countries.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let mut bytes = Vec::new();
        File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(Error::TooLong);
        }
        let reader = Reader::from_source(bytes)?;
        let mut has_countries = false;
        for network in reader.networks(maxminddb::WithinOptions::default())?.take(LOOKED_AT) {
            has_countries |= network?.decode_path::<&str>(&CODE)?.is_some();
            if has_countries {
                break;
            }
        }
        match has_countries {
            true => Ok(Self(reader)),
            false => Err(Error::NoCountries(reader.metadata().database_type.clone())),
        }
    }

    /// The country of an address. Takes some 200 ns, and allocates nothing.
    pub fn country(&self, address: IpAddr) -> Country {
        let found = self.0.lookup(address.to_canonical());
        let code = found.and_then(|found| found.decode_path::<&str>(&CODE));
        // An unreadable record of a damaged file counts as unknown.
        code.ok().flatten().map_or(Country::UNKNOWN, Country::of)
    }
}

impl fmt::Debug for GeoIp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GeoIp").field(&self.0.metadata().database_type).finish()
    }
}
