//! A server that speaks as much TDS as a test has it speak.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    time::timeout,
};

/// The longest that anything may take that is not to be measured.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// A server on a port of its own. It ends with its runtime.
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    seen: watch::Sender<Seen>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    accepted: usize,
    open: usize,
}

impl Peer {
    /// A server whose connections, counted from zero, go as `act` has them go.
    pub(super) async fn start<A, F>(act: A) -> Self
    where
        A: Fn(usize, TcpStream) -> F + Send + Sync + 'static,
        F: Future<Output = io::Result<()>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, _) = watch::channel(Seen::default());
        let (act, seeing) = (Arc::new(act), seen.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let number = seeing.borrow().accepted;
                seeing.send_modify(|seen| {
                    seen.accepted += 1;
                    seen.open += 1;
                });
                let (act, seeing) = (Arc::clone(&act), seeing.clone());
                tokio::spawn(async move {
                    // The client may go at any time.
                    let _ = act(number, stream).await;
                    seeing.send_modify(|seen| seen.open -= 1);
                });
            }
        });
        Self { address, seen }
    }

    /// How many connections there have been.
    pub(super) fn accepted(&self) -> usize {
        self.seen.borrow().accepted
    }

    /// Waits until so many connections are open.
    pub(super) async fn until_open(&self, count: usize) {
        let mut seen = self.seen.subscribe();
        let waiting = timeout(PATIENCE, seen.wait_for(|seen| seen.open == count)).await;
        assert!(waiting.is_ok(), "{count} should be open: {:?}", self.seen.borrow());
    }
}

/// One connection.
pub(super) struct Session<S>(pub(super) S);

impl<S: AsyncRead + AsyncWrite + Unpin> Session<S> {
    /// Reads one message, of any number of packets.
    pub(super) async fn hear(&mut self) -> io::Result<Vec<u8>> {
        let mut message = Vec::new();
        loop {
            let mut header = [0; 8];
            self.0.read_exact(&mut header).await?;
            let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
            let mut packet = vec![0; length - header.len()];
            self.0.read_exact(&mut packet).await?;
            message.append(&mut packet);
            if header[1] & END_OF_MESSAGE != 0 {
                return Ok(message);
            }
        }
    }

    /// Sends a message whole.
    pub(super) async fn say(&mut self, tokens: &[u8]) -> io::Result<()> {
        self.0.write_all(&packet(tokens)).await?;
        self.0.flush().await
    }

    /// Sends the first part of a message.
    pub(super) async fn say_half(&mut self, tokens: &[u8]) -> io::Result<()> {
        let whole = packet(tokens);
        self.0.write_all(&whole[..whole.len() / 2]).await?;
        self.0.flush().await
    }

    /// Answers what comes before the login: there is no TLS, or, where there is, it is in place already.
    pub(super) async fn greet(&mut self) -> io::Result<()> {
        self.hear().await?;
        // Two options, the version and the encryption, by offset and length; an end; and their values.
        self.say(&[0, 0, 11, 0, 6, 1, 0, 17, 0, 1, 0xFF, 16, 0, 0, 0, 0, 0, NOT_SUPPORTED]).await
    }

    /// Takes the login, whoever it is.
    pub(super) async fn log_in(&mut self) -> io::Result<()> {
        self.greet().await?;
        self.hear().await?;
        self.say(&done()).await?;
        // What the session is told.
        self.hear().await?;
        self.say(&done()).await
    }

    /// Takes the login, and answers each statement with one row.
    pub(super) async fn serve(&mut self) -> io::Result<()> {
        self.log_in().await?;
        loop {
            self.answer(&rows(&[7])).await?;
        }
    }

    /// Answers the next statement.
    pub(super) async fn answer(&mut self, tokens: &[u8]) -> io::Result<()> {
        self.hear().await?;
        self.say(&[tokens, &done()].concat()).await
    }

    /// Says nothing until the client has closed the connection.
    pub(super) async fn until_closed(&mut self) -> io::Result<()> {
        let mut ignored = [0; 1024];
        while self.0.read(&mut ignored).await? > 0 {}
        Ok(())
    }
}

const END_OF_MESSAGE: u8 = 1;

/// An answer about encryption.
const NOT_SUPPORTED: u8 = 2;

fn packet(tokens: &[u8]) -> Vec<u8> {
    const RESPONSE: u8 = 4;
    let length = u16::try_from(8 + tokens.len()).unwrap().to_be_bytes();
    let header = [RESPONSE, END_OF_MESSAGE, length[0], length[1], 0, 0, 1, 0];
    [&header, tokens].concat()
}

/// The end of an answer.
pub(super) fn done() -> Vec<u8> {
    let mut token = vec![0xFD];
    token.extend([0; 12]);
    token
}

/// What a statement answers: one set of rows of one number.
pub(super) fn rows(numbers: &[i32]) -> Vec<u8> {
    rows_of("outcome", numbers)
}

/// A set of rows of one number.
pub(super) fn rows_of(column: &str, numbers: &[i32]) -> Vec<u8> {
    // One column, of no user's type, without flags, an int, and the length of its name.
    let mut tokens = vec![0x81, 1, 0, 0, 0, 0, 0, 0, 0, 0x38, u8::try_from(column.len()).unwrap()];
    tokens.extend(column.encode_utf16().flat_map(u16::to_le_bytes));
    for number in numbers {
        tokens.push(0xD1);
        tokens.extend(number.to_le_bytes());
    }
    tokens
}

/// An error of this number and severity.
pub(super) fn error(number: u32, severity: u8, message: &str) -> Vec<u8> {
    let mut body = number.to_le_bytes().to_vec();
    body.extend([1, severity]);
    body.extend(text(message));
    // The server's name, the procedure's, and the line.
    body.extend([0, 0, 1, 0, 0, 0]);
    token(0xAA, &body)
}

/// Another server to go to.
pub(super) fn routing(port: u16) -> Vec<u8> {
    let mut value = vec![0];
    value.extend(port.to_le_bytes());
    value.extend(text("127.0.0.1"));
    let mut body = vec![20];
    body.extend(u16::try_from(value.len()).unwrap().to_le_bytes());
    body.extend(value);
    // There was no other before.
    body.extend([0, 0]);
    token(0xE3, &body)
}

fn token(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len()).unwrap().to_le_bytes();
    [&[kind, length[0], length[1]], body].concat()
}

fn text(text: &str) -> Vec<u8> {
    let units: Vec<u16> = text.encode_utf16().collect();
    let length = u16::try_from(units.len()).unwrap();
    std::iter::once(length).chain(units).flat_map(u16::to_le_bytes).collect()
}
