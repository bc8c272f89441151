//! A connection that speaks RESP2 or RESP3 byte for byte, because the tests must do what client libraries never do: send
//! without reading, read only when they like, close one half, or die with replies on the way.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use super::PATIENCE;

/// One reply. Maps keep their order; RESP2 has none, so there they are arrays with keys and values in turn.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Nil,
    Int(i64),
    Double(f64),
    Bool(bool),
    /// A status word such as `OK`.
    Status(String),
    Bulk(Vec<u8>),
    Array(Vec<Reply>),
    Map(Vec<(Reply, Reply)>),
    Error(ServerError),
    /// Out-of-band data of RESP3.
    Push(Vec<Reply>),
}

#[derive(Clone, PartialEq)]
pub struct ServerError(pub Vec<u8>);

impl ServerError {
    /// The first word: the part of an error that programs may rely on.
    pub fn word(&self) -> String {
        String::from_utf8_lossy(self.0.split(|byte| *byte == b' ').next().unwrap_or_default()).into_owned()
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

impl fmt::Debug for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "-{}", self.text())
    }
}

impl Reply {
    pub fn is_nil(&self) -> bool {
        *self == Reply::Nil
    }

    #[track_caller]
    pub fn int(&self) -> i64 {
        match self {
            Reply::Int(value) => *value,
            // RESP2 has neither booleans nor doubles and numbers may arrive as text.
            Reply::Bulk(bytes) => std::str::from_utf8(bytes)
                .ok()
                .and_then(|text| text.parse().ok())
                .unwrap_or_else(|| panic!("not an integer: {self:?}")),
            Reply::Bool(value) => i64::from(*value),
            _ => panic!("not an integer: {self:?}"),
        }
    }

    #[track_caller]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Reply::Bulk(bytes) => bytes,
            Reply::Status(text) => text.as_bytes(),
            _ => panic!("not a string: {self:?}"),
        }
    }

    #[track_caller]
    pub fn text(&self) -> String {
        match self {
            Reply::Int(value) => value.to_string(),
            _ => String::from_utf8(self.bytes().to_vec()).unwrap_or_else(|_| panic!("not UTF-8: {self:?}")),
        }
    }

    #[track_caller]
    pub fn list(&self) -> &[Reply] {
        match self {
            Reply::Array(items) | Reply::Push(items) => items,
            _ => panic!("not an array: {self:?}"),
        }
    }

    /// The items of an array as texts.
    #[track_caller]
    pub fn texts(&self) -> Vec<String> {
        self.list().iter().map(Reply::text).collect()
    }

    /// The entries of a map, in RESP2 and RESP3 alike.
    #[track_caller]
    pub fn entries(&self) -> Vec<(String, Reply)> {
        match self {
            Reply::Map(entries) => entries.iter().map(|(key, value)| (key.text(), value.clone())).collect(),
            Reply::Array(items) => {
                assert!(items.len().is_multiple_of(2), "an odd number of items cannot be a map: {self:?}");
                items.chunks(2).map(|pair| (pair[0].text(), pair[1].clone())).collect()
            }
            _ => panic!("not a map: {self:?}"),
        }
    }

    pub fn find(&self, key: &str) -> Option<Reply> {
        self.entries().into_iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// The value of a map's key, which must be there.
    #[track_caller]
    pub fn get(&self, key: &str) -> Reply {
        self.find(key).unwrap_or_else(|| panic!("no {key:?} in {self:?}"))
    }

    #[track_caller]
    pub fn error(&self) -> &ServerError {
        match self {
            Reply::Error(error) => error,
            _ => panic!("an error was expected: {self:?}"),
        }
    }
}

/// Whatever can be an argument of a command.
pub trait ToArg {
    fn to_arg(&self) -> Vec<u8>;
}

macro_rules! arg_from_bytes {
    ($($type:ty),*) => { $(impl ToArg for $type {
        fn to_arg(&self) -> Vec<u8> { AsRef::<[u8]>::as_ref(self).to_vec() }
    })* };
}
arg_from_bytes!(str, String, [u8], Vec<u8>);

macro_rules! arg_from_number {
    ($($type:ty),*) => { $(impl ToArg for $type {
        fn to_arg(&self) -> Vec<u8> { self.to_string().into_bytes() }
    })* };
}
arg_from_number!(i32, i64, u16, u32, u64, u128, usize, i128);

impl<const N: usize> ToArg for [u8; N] {
    fn to_arg(&self) -> Vec<u8> {
        self.to_vec()
    }
}

impl<T: ToArg + ?Sized> ToArg for &T {
    fn to_arg(&self) -> Vec<u8> {
        (*self).to_arg()
    }
}

pub struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    /// A RESP2 connection, or `None` if nobody answers.
    pub fn try_connect(port: u16) -> Option<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.set_nodelay(true).ok()?;
        Some(Self { stream, buffer: Vec::new() })
    }

    #[track_caller]
    pub fn connect(port: u16) -> Self {
        Self::try_connect(port).unwrap_or_else(|| panic!("no connection to port {port}"))
    }

    /// Switches to RESP3.
    #[track_caller]
    pub fn resp3(mut self) -> Self {
        self.run(crate::args!["HELLO", 3]);
        self
    }

    /// The server's number for this connection.
    #[track_caller]
    pub fn id(&mut self) -> i64 {
        self.run(crate::args!["CLIENT", "ID"]).int()
    }

    #[track_caller]
    pub fn send(&mut self, args: Vec<Vec<u8>>) {
        self.try_send(args).expect("the server took the command");
    }

    pub fn try_send(&mut self, args: Vec<Vec<u8>>) -> std::io::Result<()> {
        self.stream.write_all(&encode(&args))
    }

    /// Sends raw bytes: pipelines, half a command, or garbage.
    #[track_caller]
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server took the bytes");
    }

    /// Waits for the next reply.
    #[track_caller]
    pub fn read(&mut self) -> Reply {
        self.read_within(PATIENCE).unwrap_or_else(|| panic!("no reply within {PATIENCE:?}"))
    }

    /// The next reply, or `None` if there was none in that time. The time does not end a reply that has begun.
    #[track_caller]
    pub fn read_within(&mut self, time: Duration) -> Option<Reply> {
        match self.try_read_within(time) {
            Ok(reply) => reply,
            Err(error) => panic!("the connection broke: {error}"),
        }
    }

    pub fn try_read_within(&mut self, time: Duration) -> std::io::Result<Option<Reply>> {
        let deadline = Instant::now() + time;
        let mut chunk = vec![0; 1 << 16];
        loop {
            if let Some((reply, used)) = parse(&self.buffer) {
                self.buffer.drain(..used);
                return Ok(Some(reply));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            // A zero time-out would mean none at all.
            self.stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.buffer.extend_from_slice(&chunk[..count]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    if left.is_zero() && self.buffer.is_empty() {
                        return Ok(None);
                    }
                    if left.is_zero() && Instant::now() > deadline + PATIENCE {
                        return Err(ErrorKind::TimedOut.into());
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether a reply is there; it stays to be read.
    pub fn is_answered(&mut self) -> bool {
        let mut chunk = [0; 4096];
        let _ = self.stream.set_read_timeout(Some(Duration::from_millis(1)));
        if let Ok(count) = self.stream.read(&mut chunk) {
            self.buffer.extend_from_slice(&chunk[..count]);
        }
        parse(&self.buffer).is_some()
    }

    /// Runs a command and gives whatever is replied, errors too.
    #[track_caller]
    pub fn call(&mut self, args: Vec<Vec<u8>>) -> Reply {
        self.send(args);
        self.read()
    }

    /// Runs a command that must succeed.
    #[track_caller]
    pub fn run(&mut self, args: Vec<Vec<u8>>) -> Reply {
        let shown = show(&args);
        match self.call(args) {
            Reply::Error(error) => panic!("{shown} was refused: {}", error.text()),
            reply => reply,
        }
    }

    /// Runs a command that must be refused; gives the first word of the error.
    #[track_caller]
    pub fn refused(&mut self, args: Vec<Vec<u8>>) -> String {
        let shown = show(&args);
        match self.call(args) {
            Reply::Error(error) => error.word(),
            reply => panic!("{shown} should have been refused, and was answered {reply:?}"),
        }
    }

    /// Says that nothing more will be sent; the server may still send, or have closed the connection.
    pub fn close_sending_half(&self) {
        if let Err(error) = self.stream.shutdown(Shutdown::Write) {
            assert_eq!(error.kind(), std::io::ErrorKind::NotConnected, "half a shutdown");
        }
    }
}

pub fn encode(args: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        bytes.extend_from_slice(arg);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// A command for people, cut to a length that fits a message.
pub fn show(args: &[Vec<u8>]) -> String {
    let mut text = String::new();
    for arg in args.iter().take(30) {
        let head = &arg[..arg.len().min(60)];
        text.push_str(&head.escape_ascii().to_string());
        text.push(' ');
    }
    text.trim_end().to_string()
}

/// The first complete reply in `bytes` and its length.
fn parse(bytes: &[u8]) -> Option<(Reply, usize)> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    let line = &bytes[1..end];
    let next = end + 2;
    let text = || String::from_utf8_lossy(line).into_owned();
    let number = || text().parse::<i64>().unwrap_or_else(|_| panic!("not a number in a reply: {}", text()));
    let bulk = || -> Option<(Option<&[u8]>, usize)> {
        let Ok(length) = usize::try_from(number()) else { return Some((None, next)) };
        let body = bytes.get(next..next + length)?;
        bytes.get(next + length..next + length + 2)?;
        Some((Some(body), next + length + 2))
    };
    let many = |count: i64| -> Option<(Vec<Reply>, usize)> {
        let mut items = Vec::new();
        let mut at = next;
        for _ in 0..count {
            let (item, used) = parse(bytes.get(at..)?)?;
            items.push(item);
            at += used;
        }
        Some((items, at))
    };
    Some(match bytes[0] {
        b'+' => (Reply::Status(text()), next),
        b'-' => (Reply::Error(ServerError(line.to_vec())), next),
        b':' => (Reply::Int(number()), next),
        b'_' => (Reply::Nil, next),
        b'#' => (Reply::Bool(line == b"t"), next),
        b',' => (Reply::Double(text().parse().unwrap_or(f64::NAN)), next),
        b'(' => (Reply::Bulk(line.to_vec()), next),
        b'$' => {
            let (body, used) = bulk()?;
            (body.map_or(Reply::Nil, |body| Reply::Bulk(body.to_vec())), used)
        }
        b'=' => {
            let (body, used) = bulk()?;
            (Reply::Bulk(body.map(|body| body[4..].to_vec()).unwrap_or_default()), used)
        }
        b'!' => {
            let (body, used) = bulk()?;
            (Reply::Error(ServerError(body.unwrap_or_default().to_vec())), used)
        }
        b'*' if line.starts_with(b"-") => (Reply::Nil, next),
        b'*' | b'~' => {
            let (items, used) = many(number())?;
            (Reply::Array(items), used)
        }
        b'>' => {
            let (items, used) = many(number())?;
            (Reply::Push(items), used)
        }
        b'%' => {
            let (items, used) = many(number() * 2)?;
            let entries = items.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
            (Reply::Map(entries), used)
        }
        other => panic!("a reply begins with {:?}", char::from(other)),
    })
}
