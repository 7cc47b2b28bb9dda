//! This provider's performance budget, as ratios measured in one run: `cargo xtask bench`.

mod latency;
mod rest;
mod samples;
mod takeover;

use std::{error::Error, process::ExitCode};

use lease_conformance::servers::PostgresServer;
use lease_postgres::{
    PostgresConfig, PostgresLeaseStore,
    tokio_postgres::{Client, Config, NoTls},
};

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let server = PostgresServer::find().map_err(|none| none.to_string())?;
    let place = Place::new(&server).await?;
    let latencies = latency::measure(&place).await?;
    let takeovers = takeover::measure(&place).await?;
    let at_rest = rest::measure(&place).await?;
    place.remove().await?;
    Ok(if latencies && takeovers && at_rest { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The schema that is measured in, which nobody else uses.
const SCHEMA: &str = "lease_budget";
const CREATE: &str = "DROP SCHEMA IF EXISTS lease_budget CASCADE; CREATE SCHEMA lease_budget";
const DROP: &str = "DROP SCHEMA lease_budget CASCADE";

/// Where it is measured.
struct Place {
    driver: Config,
}

impl Place {
    async fn new(server: &PostgresServer) -> Result<Self> {
        let place = Self { driver: server.url().parse()? };
        place.client().await?.batch_execute(CREATE).await?;
        place.store().await?.migrate().await?;
        Ok(place)
    }

    async fn store(&self) -> Result<PostgresLeaseStore> {
        Ok(PostgresLeaseStore::connect(PostgresConfig::new(self.driver.clone()).schema(SCHEMA)).await?)
    }

    /// A client that knows nothing of leases.
    async fn client(&self) -> Result<Client> {
        let mut driver = self.driver.clone();
        driver.options(format!("-c search_path={SCHEMA}"));
        let (client, connection) = driver.connect(NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }

    async fn remove(self) -> Result<()> {
        Ok(self.client().await?.batch_execute(DROP).await?)
    }
}

/// One line of the table that this program is for.
#[expect(clippy::print_stdout, reason = "the measurements are this program's output")]
fn report(what: &str, measured: &str, is_kept: bool) -> bool {
    println!("{} postgres: {what}: {measured}", if is_kept { "ok  " } else { "OVER" });
    is_kept
}
