//! A network between a store and its server that can be held still, in either direction, and that counts round trips.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
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
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    held: watch::Sender<Held>,
    round_trips: Arc<AtomicUsize>,
}

/// What does not get through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) requests: bool,
    pub(crate) responses: bool,
}

impl Proxy {
    /// A proxy to the server at `upstream`.
    pub(crate) async fn start(upstream: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (held, _) = watch::channel(Held::default());
        let round_trips = Arc::new(AtomicUsize::new(0));
        let (gate, counter) = (held.clone(), Arc::clone(&round_trips));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (gate, counter, upstream) = (gate.subscribe(), Arc::clone(&counter), upstream.clone());
                tokio::spawn(async move {
                    if let Ok(server) = TcpStream::connect(upstream).await {
                        forward(client, server, gate, counter);
                    }
                });
            }
        });
        Self { address, held, round_trips }
    }

    /// From now on these bytes stay where they are, until others are held.
    pub(crate) fn hold(&self, held: Held) {
        self.held.send_replace(held);
    }

    /// How often a server has answered what a client has sent, since this was last asked.
    pub(crate) fn round_trips(&self) -> usize {
        self.round_trips.swap(0, Ordering::SeqCst)
    }
}

fn forward(client: TcpStream, server: TcpStream, gate: watch::Receiver<Held>, counter: Arc<AtomicUsize>) {
    drop((client.set_nodelay(true), server.set_nodelay(true)));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let is_asked = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&is_asked);
    tokio::spawn(copy(
        from_client,
        to_server,
        gate.clone(),
        |held| held.requests,
        move || {
            asked.store(true, Ordering::SeqCst);
        },
    ));
    tokio::spawn(copy(
        from_server,
        to_client,
        gate,
        |held| held.responses,
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
    mut gate: watch::Receiver<Held>,
    is_held: fn(&Held) -> bool,
    passes: impl Fn(),
) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = match from.read(&mut buffer).await {
            Ok(count) if count > 0 => count,
            _ => return,
        };
        if gate.wait_for(|held| !is_held(held)).await.is_err() {
            return;
        }
        passes();
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
