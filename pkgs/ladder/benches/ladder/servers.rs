//! All stages of a ladder, running.

use std::path::Path;

use bench::Error;
use bench::postgres::{Durability, Postgres};
use bench::server::{Placement, Server, free_address};
use ladder::api::{self, database};
use ladder::links;
use ladder::stage::Stage;
use service::workers;

use crate::kernel::Kernel;
use crate::programs;

/// The name of a stage's second process.
pub const CONTROL: &str = "the same again";

/// The CPU reserved for the servers, if there is one to spare.
pub fn cpu() -> Option<usize> {
    workers::allowed().first().copied().filter(|_| workers::allowed().len() > 1)
}

/// A PostgreSQL with the API's table.
pub fn postgres() -> Result<Postgres, Error> {
    let postgres = Postgres::start(Durability::None, &["shared_buffers=256MB"])?;
    // Statements in one string run in one transaction, in which nothing can be vacuumed.
    for statement in database::schema().split_inclusive(";\n") {
        postgres.execute("postgres", statement)?;
    }
    Ok(postgres)
}

/// Each stage, and one of them twice: the difference between those two is noise.
pub struct Servers {
    stages: &'static [Stage],
    servers: Vec<Server>,
    /// The stage that runs twice.
    twin: usize,
    control: Server,
}

impl Servers {
    /// The API's stages, on a [`postgres`].
    pub fn of_api(postgres: &Postgres, kernel: &Kernel) -> Result<Self, Error> {
        let url = postgres.url("postgres");
        // The stage that runs twice comes after the stages that block, whose noise would hide the effects of the later
        // ones.
        Self::start("api", &api::STAGES, 3, kernel, |_| url.clone())
    }

    /// The shortener's stages, each with its own file, since WAL is a property of the file.
    pub fn of_links(scratch: &Path) -> Result<Self, Error> {
        Self::start("links", &links::STAGES, 1, &Kernel::untouched(), |process| {
            scratch.join(format!("{process}.db")).to_string_lossy().into_owned()
        })
    }

    fn start(
        ladder: &str,
        stages: &'static [Stage],
        twin: usize,
        kernel: &Kernel,
        database: impl Fn(usize) -> String,
    ) -> Result<Self, Error> {
        let start = |name, number: usize, process| {
            let _set = kernel.around(name)?;
            let listen = free_address()?;
            let last = ladder == "api" && number == stages.len();
            let program = if last { programs::last() } else { programs::DEFAULT.into() };
            let mut command = Placement { workers: 1, cpu: cpu() }.command(program);
            command.args([ladder, &number.to_string(), "--listen", &listen.to_string()]);
            Server::start(name, listen, command.arg("--database").arg(database(process)))
        };
        let servers: Result<Vec<Server>, Error> =
            stages.iter().zip(1..).map(|(stage, number)| start(stage.name, number, number)).collect();
        let control = start(CONTROL, twin + 1, stages.len() + 1)?;
        Ok(Self { stages, servers: servers?, twin, control })
    }

    /// The served stages.
    pub fn stages(&self) -> &'static [Stage] {
        self.stages
    }

    /// The stage that runs twice.
    pub fn twin(&self) -> &'static str {
        self.stages[self.twin].name
    }

    /// In the order of loading: the control comes right after its twin, just as each stage comes after the previous
    /// one.
    pub fn all(&self) -> impl Iterator<Item = &Server> {
        let (first, rest) = self.servers.split_at(self.twin + 1);
        first.iter().chain([&self.control]).chain(rest)
    }
}
