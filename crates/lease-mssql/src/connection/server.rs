//! How a connection is opened: the address, the handshake, the login, one redirect, and what the session is told.

use std::{
    fmt, io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use lease_core::{ErrorKind, clock::LocalInstant};
use tiberius::{Client, Config, error::Error};
use tokio::{
    net::{TcpStream, lookup_host},
    time::timeout,
};

use super::{Connection, socket::Socket};
use crate::error::Failure;

/// Where a database is, and how connections to it are opened.
pub(crate) struct Server {
    pub(crate) driver: Config,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Whether TLS comes before anything else (TDS 8).
    pub(crate) is_strict: bool,
    /// The longest that opening a connection may take.
    pub(crate) connect_timeout: Duration,
    /// The longest that sent data may stay without an acknowledgement.
    pub(crate) operation_timeout: Duration,
    /// What a session is told first.
    pub(crate) session: String,
    pub(crate) stage: Arc<Stage>,
}

/// How far the latest attempt to connect has come, for the error of whoever waits for it.
#[derive(Debug, Default)]
pub(crate) struct Stage(AtomicU8);

impl Stage {
    const LOOK_UP: u8 = 0;
    const CONNECT: u8 = 1;
    const MUTE: u8 = 2;
    const LOGIN: u8 = 3;

    fn set(&self, stage: u8) {
        self.0.store(stage, Ordering::Relaxed);
    }

    /// Somebody is there.
    pub(super) fn hear(&self) {
        let _ = self.0.compare_exchange(Self::MUTE, Self::LOGIN, Ordering::Relaxed, Ordering::Relaxed);
    }
}

impl Server {
    /// Opens a connection, within its limit.
    pub(super) async fn connect(&self) -> Result<Connection, Failure> {
        let opened = timeout(self.connect_timeout, self.open()).await;
        let late = || format!("{} within connect_timeout, {:?}", self.where_it_stands(), self.connect_timeout);
        opened.unwrap_or_else(|_| Err(Failure::new(ErrorKind::Unavailable, late())))
    }

    /// What was under way last, as the beginning of a sentence.
    pub(crate) fn where_it_stands(&self) -> String {
        let address = address(&self.host, self.port);
        match self.stage.0.load(Ordering::Relaxed) {
            Stage::LOOK_UP => format!("the address of {address} was not found"),
            Stage::CONNECT => format!("{address} did not take the connection"),
            Stage::MUTE if self.is_strict => {
                format!("{address} said nothing to encrypt=strict, as servers older than SQL Server 2022 do,")
            }
            Stage::MUTE => format!("{address} took the connection and said nothing"),
            _ => format!("{address} did not end the login"),
        }
    }

    async fn open(&self) -> Result<Connection, Failure> {
        let client = match self.log_in(&self.driver, &self.host, self.port).await {
            Err(Refusal::Routing { host, port }) => {
                let mut driver = self.driver.clone();
                driver.host(&host);
                driver.port(port);
                self.log_in(&driver, &host, port).await
            }
            client => client,
        };
        let (client, socket) = client.map_err(|refusal| match refusal {
            Refusal::Failure(failure) => failure,
            Refusal::Routing { host, port } => Failure::new(
                ErrorKind::Unavailable,
                format!(
                    "{} redirects to a server that redirects again, to {}",
                    address(&self.host, self.port),
                    address(&host, port)
                ),
            ),
        })?;
        let mut connection = Connection::new(client, socket);
        connection.run(&self.session).await.map_err(|failure| failure.at_connect(&address(&self.host, self.port)))?;
        Ok(connection)
    }

    async fn log_in(&self, driver: &Config, host: &str, port: u16) -> Result<(Client<Socket>, Socket), Refusal> {
        let socket = self.reach(host, port).await?;
        self.stage.set(Stage::MUTE);
        // The driver's future is large.
        match Box::pin(Client::connect(driver.clone(), socket.clone())).await {
            Ok(client) => Ok((client, socket)),
            Err(Error::Routing { host, port }) => Err(Refusal::Routing { host, port }),
            Err(error) => Err(Failure::from(error).at_connect(&address(host, port)).into()),
        }
    }

    /// A socket to the first address that takes the connection. Each has a fair share of the time, so that one that swallows packets
    /// does not hide the next.
    async fn reach(&self, host: &str, port: u16) -> Result<Socket, Failure> {
        let deadline = LocalInstant::now() + self.connect_timeout;
        self.stage.set(Stage::LOOK_UP);
        let found = lookup_host((host, port)).await;
        let cannot = |error: &dyn fmt::Display| {
            Failure::new(ErrorKind::Unavailable, format!("{} cannot be reached: {error}", address(host, port)))
        };
        let addresses: Vec<SocketAddr> = found.map_err(|error| cannot(&error))?.collect();
        self.stage.set(Stage::CONNECT);
        let mut last = io::Error::new(io::ErrorKind::NotFound, "it has no address");
        for (index, address) in addresses.iter().enumerate() {
            let others = u32::try_from(addresses.len() - index).unwrap_or(u32::MAX);
            let connected = timeout(deadline.remaining() / others, TcpStream::connect(address)).await;
            match connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                Ok(tcp) => {
                    return Socket::new(tcp, self.operation_timeout, Arc::clone(&self.stage))
                        .map_err(|error| cannot(&error));
                }
                Err(error) => last = error,
            }
        }
        Err(cannot(&last))
    }
}

/// As it is written: an IPv6 address stands in brackets.
fn address(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Why a login did not come about.
enum Refusal {
    /// The server names another one.
    Routing {
        host: String,
        port: u16,
    },
    Failure(Failure),
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("host", &self.host).field("port", &self.port).finish_non_exhaustive()
    }
}
