//! What `lease` and its watchdog say to each other: one JSON object a line, over a socket pair.
//!
//! The child's standard input travels over the same socket once, before the first line, because the watchdog's own standard input
//! *is* the socket.

use std::{
    io::{self, IoSlice, IoSliceMut, Write as _},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream as StdUnixStream,
    },
    time::Duration,
};

use lease_core::clock::LocalInstant;
use rustix::{
    io::{FdFlags, fcntl_setfd},
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
        recvmsg, sendmsg,
    },
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    net::UnixStream,
};

/// What `lease` tells its watchdog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// Start the child, unless its stop point has passed already.
    Start {
        /// When the child's group must have ended, as far as is known now.
        deadline: BootTime,
        /// How long the group has between SIGTERM and SIGKILL.
        grace: Duration,
        /// The process group that lends the child the terminal's foreground; none to leave the terminal alone.
        foreground_of: Option<i32>,
    },
    /// The child's group is known here: let the child become the command.
    Go,
    /// The lease was renewed.
    Deadline(BootTime),
    /// End the group within the grace, as was asked.
    Stop,
    /// End the group within the grace, because its lease is about to end.
    Lapse,
    /// End the group at once: somebody else may have the lease.
    Kill,
    /// Pass a signal on to the group.
    Signal(i32),
    /// Let a stopped group go on, and lend it the terminal's foreground when there is a group to lend it.
    Resume {
        /// As in [`Start`](Self::Start).
        foreground_of: Option<i32>,
    },
}

/// What the watchdog answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Report {
    /// The child is there, as the leader of the process group of this id, and waits for [`Order::Go`].
    Started(i32),
    /// The child could not even be tried.
    NotStarted(String),
    /// This deadline was heard and will be kept.
    Heard(BootTime),
    /// The terminal stopped the child with this signal, and has its foreground back.
    Stopped(i32),
    /// The child itself has ended; others of its group may still run.
    Exited(ChildEnd),
    /// Nothing of the group runs any more, and the watchdog ends.
    Gone {
        /// Whether the group ended because its lease did.
        lapsed: bool,
    },
}

/// How the child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ChildEnd {
    /// With this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// A local instant as the time on the system's suspend-counting clock, which all processes of a host share.
///
/// It is absolute, for a time left would stretch while its writer is frozen between the reading and the writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct BootTime(Duration);

impl From<LocalInstant> for BootTime {
    fn from(instant: LocalInstant) -> Self {
        Self(instant.to_boot_time())
    }
}

impl From<BootTime> for LocalInstant {
    fn from(time: BootTime) -> Self {
        Self::from_boot_time(time.0)
    }
}

/// One end of the conversation.
#[derive(Debug)]
pub(crate) struct Channel {
    lines: Lines<BufReader<UnixStream>>,
    /// The same socket: a write is tried at once, whatever the runtime believes about its readiness.
    writer: StdUnixStream,
}

impl Channel {
    /// Takes one end of a socket pair. Needs a tokio runtime.
    pub(crate) fn new(socket: StdUnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let writer = socket.try_clone()?;
        Ok(Self { lines: BufReader::new(UnixStream::from_std(socket)?).lines(), writer })
    }

    /// Says one thing without ever waiting: a peer that does not read what little is said has failed.
    pub(crate) fn send(&self, message: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        match (&self.writer).write(&line)? {
            written if written == line.len() => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    /// Hears one thing; none when the peer is gone or does not speak this protocol.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub(crate) async fn receive<T: DeserializeOwned>(&mut self) -> Option<T> {
        let line = self.lines.next_line().await.ok()??;
        serde_json::from_str(&line).ok()
    }
}

/// Sends a file descriptor ahead of the first line.
pub(crate) fn send_descriptor(socket: &StdUnixStream, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor];
    if !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("no room for a file descriptor"));
    }
    sendmsg(socket, &[IoSlice::new(b"\n")], &mut ancillary, SendFlags::empty())?;
    Ok(())
}

/// Receives the file descriptor that [`send_descriptor`] sent. It waits, so call it before a runtime has the socket.
pub(crate) fn receive_descriptor(socket: impl AsFd) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::empty())?;
    let received = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    let received = received.ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "no file descriptor came"))?;
    // A received descriptor would be every later child's.
    fcntl_setfd(&received, FdFlags::CLOEXEC)?;
    Ok(received)
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Read as _};

    use super::*;

    fn pair() -> (Channel, Channel) {
        let (one, other) = StdUnixStream::pair().unwrap();
        (Channel::new(one).unwrap(), Channel::new(other).unwrap())
    }

    #[tokio::test]
    async fn what_is_said_is_heard_in_order() {
        let (lease, mut watchdog) = pair();
        let deadline = BootTime(Duration::new(7, 8));
        let start = Order::Start { deadline, grace: Duration::from_millis(500), foreground_of: Some(42) };
        let orders = [start, Order::Deadline(deadline), Order::Signal(15), Order::Kill];
        for order in &orders {
            lease.send(order).unwrap();
        }
        for order in orders {
            assert_eq!(watchdog.receive::<Order>().await, Some(order));
        }
        drop(lease);
        assert_eq!(watchdog.receive::<Order>().await, None);
    }

    #[tokio::test]
    async fn a_peer_that_does_not_read_never_blocks_the_speaker() {
        let (lease, watchdog) = pair();
        let failed = (0..100_000).find(|_| lease.send(&Order::Stop).is_err());
        assert!(failed.is_some());
        drop(watchdog);
    }

    #[tokio::test]
    async fn nonsense_is_taken_for_a_dead_peer() {
        let (one, other) = StdUnixStream::pair().unwrap();
        let mut watchdog = Channel::new(other).unwrap();
        (&one).write_all(b"{\"explode\":1}\n").unwrap();
        assert_eq!(watchdog.receive::<Order>().await, None);
    }

    #[test]
    fn a_descriptor_arrives_open() {
        let (one, other) = StdUnixStream::pair().unwrap();
        let (reader, mut writer) = io::pipe().unwrap();
        send_descriptor(&one, reader.as_fd()).unwrap();
        drop(reader);
        let mut received = File::from(receive_descriptor(&other).unwrap());
        writer.write_all(b"hello").unwrap();
        drop(writer);
        let mut text = String::new();
        received.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
    }

    #[test]
    fn a_closed_socket_brings_no_descriptor() {
        let (one, other) = StdUnixStream::pair().unwrap();
        drop(one);
        assert!(receive_descriptor(&other).is_err());
    }
}
