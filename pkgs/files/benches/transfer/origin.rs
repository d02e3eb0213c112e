//! Files that are complete in the cache of an origin, compared with the same files in a directory: they should cost the
//! same.

use std::path::Path;

use bench::Error;
use bench::gateway::{ACCESS_KEY, BUCKET, Gateway, SECRET_KEY};
use bench::report::Report;
use bench::server::Server;

use crate::network::Network;
use crate::tables::{self, Load};
use crate::{FILES, OURS, SIZES, Scale, directory, peers};

/// Ours with an origin.
const ORIGIN: &str = "ours, --origin";

/// The allowed difference: a hundredth more is a round's noise.
const TARGET: f64 = 1.03;

/// Measures both, in turn.
pub fn measure(scale: Scale, root: &Path, report: &mut Report) -> Result<(), Error> {
    let Some(gateway) = Gateway::start("bench of an origin") else { return Ok(()) };
    let network = Network::loopback();
    let cache = tempfile::tempdir_in(root)?;
    let servers = [peers::ours(&network, root, OURS, "auto")?, of_origin(&network, &gateway, cache.path())?];
    for (size, _) in SIZES {
        let directory = directory(size);
        for number in 0..FILES {
            let path = format!("{directory}/f{number}.bin");
            let file = root.join(&path);
            let bytes = std::fs::read(&file).map_err(Error::file(&file))?;
            gateway.put(&path, &bytes, &[]);
            // From here on the object is complete.
            servers[1].expect(&format!("/{path}"), 200)?;
        }
    }
    let mut all = Vec::new();
    for (size, bytes) in SIZES {
        all.extend(tables::alternate(scale, &network, &servers, size, bytes, Load::Drain)?);
    }
    println!("{}", tables::table("files of an origin, warm", &all));
    for (size, _) in SIZES {
        if let Some(ratio) = tables::cpu_ratio(&all, (ORIGIN, OURS), size) {
            report.target(
                format!("origin, {size}: CPU a request over that of a local file"),
                ratio,
                "x",
                TARGET,
            );
        }
    }
    Ok(())
}

fn of_origin(network: &Network, gateway: &Gateway, cache: &Path) -> Result<Server, Error> {
    let address = network.address()?;
    let mut command = peers::PLACEMENT.command(peers::BINARY);
    command
        .args(["serve", "--workers", "1", "--listen", &address.to_string(), "--no-precompressed"])
        .args(["--origin", &format!("s3://{BUCKET}"), "--origin-allow-http"])
        .args(["--origin-endpoint", &format!("http://{}", gateway.address()), "--origin-cache"])
        .arg(cache)
        .env("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        .env("AWS_SECRET_ACCESS_KEY", SECRET_KEY);
    Server::start(ORIGIN, address, &mut command)
}
