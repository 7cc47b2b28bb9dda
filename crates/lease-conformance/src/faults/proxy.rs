//! A network between a store and its server that can be held still in either direction, or slowed down, and that counts round trips.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
};

/// A proxy on a port of its own. It ends with its runtime.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    held: watch::Sender<Held>,
    delay: watch::Sender<Delay>,
    round_trips: Arc<AtomicUsize>,
}

/// What does not get through: bytes that are held stay where they are, as on a network that swallows packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// What clients send.
    pub requests: bool,
    /// What the server answers.
    pub responses: bool,
}

/// How long something takes that would take no time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delay {
    /// Until a new connection gets through to the server.
    pub connections: Duration,
    /// What the server answers. Of a long answer all that came meanwhile goes on its way together.
    pub responses: Duration,
}

impl Proxy {
    /// A proxy to the server at `upstream`, `HOST:PORT`.
    ///
    /// # Errors
    ///
    /// When it cannot listen.
    pub async fn start(upstream: impl Into<String>) -> io::Result<Self> {
        let (listener, upstream) = (TcpListener::bind("127.0.0.1:0").await?, upstream.into());
        let address = listener.local_addr()?;
        let (held, delay) = (watch::Sender::new(Held::default()), watch::Sender::new(Delay::default()));
        let round_trips = Arc::new(AtomicUsize::new(0));
        let way = Way { held: held.subscribe(), delay: delay.subscribe(), round_trips: Arc::clone(&round_trips) };
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (way, upstream) = (way.clone(), upstream.clone());
                tokio::spawn(async move {
                    let delay = way.delay.borrow().connections;
                    tokio::time::sleep(delay).await;
                    if let Ok(server) = TcpStream::connect(upstream).await {
                        forward(client, server, way);
                    }
                });
            }
        });
        Ok(Self { address, held, delay, round_trips })
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on this is held, and what was held before and is not any more goes on its way.
    pub fn hold(&self, held: Held) {
        self.held.send_replace(held);
    }

    /// From now on this takes so long. What is under way already keeps its time.
    pub fn delay(&self, delay: Delay) {
        self.delay.send_replace(delay);
    }

    /// How often the server has answered what a client has sent, since this was last asked.
    pub fn round_trips(&self) -> usize {
        self.round_trips.swap(0, Ordering::SeqCst)
    }
}

/// What every connection through a proxy knows of it.
#[derive(Clone)]
struct Way {
    held: watch::Receiver<Held>,
    delay: watch::Receiver<Delay>,
    round_trips: Arc<AtomicUsize>,
}

fn forward(client: TcpStream, server: TcpStream, way: Way) {
    drop((client.set_nodelay(true), server.set_nodelay(true)));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let is_asked = Arc::new(AtomicBool::new(false));
    let (asked, answered) = (Arc::clone(&is_asked), way.clone());
    tokio::spawn(copy(
        from_client,
        to_server,
        way,
        |held, _| (held.requests, Duration::ZERO),
        move || {
            asked.store(true, Ordering::SeqCst);
        },
    ));
    let counter = Arc::clone(&answered.round_trips);
    tokio::spawn(copy(
        from_server,
        to_client,
        answered,
        |held, delay| (held.responses, delay.responses),
        move || {
            if is_asked.swap(false, Ordering::SeqCst) {
                counter.fetch_add(1, Ordering::SeqCst);
            }
        },
    ));
}

async fn copy(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut way: Way,
    obstacle: fn(Held, Delay) -> (bool, Duration),
    passes: impl Fn(),
) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let mut count = match from.read(&mut buffer).await {
            Ok(count) if count > 0 => count,
            _ => return,
        };
        let (_, delay) = obstacle(Held::default(), *way.delay.borrow());
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
            while let Ok(more @ 1..) = from.try_read(&mut buffer[count..]) {
                count += more;
            }
        }
        if way.held.wait_for(|held| !obstacle(*held, Delay::default()).0).await.is_err() {
            return;
        }
        passes();
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
