//! The TCP socket below a connection: what can be known of it without asking the server.

use std::{
    io::{self, ErrorKind::WouldBlock},
    mem::MaybeUninit,
    net::Shutdown,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use futures::io::{AsyncRead, AsyncWrite};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use super::server::Stage;

/// A socket that the driver reads and writes, and that its connection looks at. It closes with the last clone.
#[derive(Clone, Debug)]
pub(crate) struct Socket(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    tcp: TcpStream,
    has_sent: AtomicBool,
    has_received: AtomicBool,
    /// Who wants to know that the server has said something.
    stage: Arc<Stage>,
}

impl Socket {
    /// Takes a socket that is connected. What is left to the operating system, which may take hours to notice that a peer is gone, is
    /// bounded: keepalives after 10 s, and, where the system knows it, a limit for data that is not acknowledged.
    pub(super) fn new(tcp: TcpStream, unacknowledged: Duration, stage: Arc<Stage>) -> io::Result<Self> {
        tcp.set_nodelay(true)?;
        let socket = SockRef::from(&tcp);
        let keepalive = TcpKeepalive::new().with_time(Duration::from_secs(10)).with_interval(Duration::from_secs(5));
        socket.set_tcp_keepalive(&keepalive.with_retries(3))?;
        #[cfg(target_os = "linux")]
        socket.set_tcp_user_timeout(Some(unacknowledged))?;
        #[cfg(not(target_os = "linux"))]
        let _ = unacknowledged;
        let (has_sent, has_received) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Self(Arc::new(Inner { tcp, has_sent, has_received, stage })))
    }

    /// From here on, `has_sent` is told anew.
    pub(crate) fn begin(&self) {
        self.0.has_sent.store(false, Ordering::Relaxed);
    }

    /// Whether any byte has gone out since it was begun.
    pub(crate) fn has_sent(&self) -> bool {
        self.0.has_sent.load(Ordering::Relaxed)
    }

    /// Whether a server at rest, which says nothing unless it is asked, is there still, as far as the operating system knows: not
    /// when it has closed the connection, nor when it has said something, such as why it is about to.
    pub(crate) fn is_quiet(&self) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        SockRef::from(&self.0.tcp).peek(&mut byte).is_err_and(|error| error.kind() == WouldBlock)
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.tcp.poll_read_ready(cx))?;
            match self.0.tcp.try_read(buffer) {
                Err(error) if error.kind() == WouldBlock => {}
                read => {
                    if !self.0.has_received.swap(true, Ordering::Relaxed) {
                        self.0.stage.hear();
                    }
                    return Poll::Ready(read);
                }
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.tcp.poll_write_ready(cx))?;
            match self.0.tcp.try_write(bytes) {
                Err(error) if error.kind() == WouldBlock => {}
                written => {
                    let has_gone = written.as_ref().is_ok_and(|count| *count > 0);
                    self.0.has_sent.fetch_or(has_gone, Ordering::Relaxed);
                    return Poll::Ready(written);
                }
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(SockRef::from(&self.0.tcp).shutdown(Shutdown::Write))
    }
}
