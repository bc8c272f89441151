//! The connection: takes what is asked, batch by batch, and gives what is answered, in a thread of its own.

use std::sync::mpsc::Receiver;
use std::time::Duration;

use redis::{Client, Connection, ErrorKind, RedisError, Value, cmd};

use crate::ask::{Answer, Ask};
use crate::data;

/// How long the server may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// What there is to tell of the server.
#[derive(Debug)]
pub enum News {
    /// A connection was made; to which kind and version.
    Up(String),
    /// Each ask with its answer. Every batch ends so, or as the next.
    Answers(Vec<(Ask, Answer)>),
    /// There is no connection, why, and what was asked in vain.
    Down(String, Vec<Ask>),
}

/// Serves batches until nobody asks or listens any more. A lost connection is made anew for the next batch.
pub fn serve(client: &Client, batches: &Receiver<Vec<Ask>>, mut tell: impl FnMut(News) -> bool) {
    let mut connection = None;
    for asks in batches {
        let news = match answer(client, &mut connection, &asks, &mut tell) {
            Ok(answers) => News::Answers(asks.into_iter().zip(answers).collect()),
            Err(error) => {
                connection = None;
                News::Down(reason(&error), asks)
            }
        };
        if !tell(news) {
            return;
        }
    }
}

fn answer(
    client: &Client,
    connection: &mut Option<Connection>,
    asks: &[Ask],
    tell: &mut impl FnMut(News) -> bool,
) -> Result<Vec<Answer>, RedisError> {
    if connection.is_none() {
        let mut new = client.get_connection_with_timeout(PATIENCE)?;
        new.set_read_timeout(Some(PATIENCE))?;
        new.set_write_timeout(Some(PATIENCE))?;
        new.send_packed_command(&cmd("INFO").arg("server").get_packed_command())?;
        tell(News::Up(version(&new.recv_response()?)));
        *connection = Some(new);
    }
    let Some(connection) = connection else { return Ok(Vec::new()) };
    // All at once, so that it costs one round trip.
    let mut packed = Vec::new();
    for ask in asks {
        let mut command = redis::Cmd::new();
        for word in ask.words() {
            command.arg(word);
        }
        packed.extend(command.get_packed_command());
    }
    connection.send_packed_command(&packed)?;
    asks.iter().map(|ask| Ok(ask.read(&connection.recv_response()?))).collect()
}

/// `Redis 7.0.15`, `Valkey 8.1.0`; nothing if the user may not know.
fn version(info: &Value) -> String {
    let info =
        data::bytes(info).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let field = |name: &str| {
        info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(crate::text::line))
    };
    let version = |kind, field: Option<String>| field.map(|number| format!("{kind} {number}"));
    version("Valkey", field("valkey_version"))
        .or_else(|| version("Redis", field("redis_version")))
        .unwrap_or_default()
}

fn reason(error: &RedisError) -> String {
    if error.is_timeout() {
        return "it does not answer".to_string();
    }
    if error.kind() == ErrorKind::AuthenticationFailed {
        return format!("password or user are wrong ({})", crate::text::line(&error.to_string()));
    }
    crate::text::line(&error.to_string())
}
