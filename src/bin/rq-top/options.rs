//! The command line, with the options of redis-cli.

use std::path::PathBuf;

use clap::{ArgAction, Parser};
use redis::{Client, ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo, RedisError};

/// Shows the job queues of a Redis server with the module rq, refreshed each second. Press ? in it for its keys.
#[derive(Debug, Parser)]
#[command(name = "rq-top", version, disable_help_flag = true)]
pub struct Options {
    /// Host of the server
    #[arg(short = 'h', long, default_value = "127.0.0.1")]
    host: String,
    /// Port of the server
    #[arg(short, long, default_value_t = 6379)]
    port: u16,
    /// Unix socket of the server, instead of host and port
    #[arg(short, long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Password; the environment keeps it off the list of processes
    #[arg(
        short = 'a',
        long = "pass",
        env = "REDISCLI_AUTH",
        hide_env_values = true,
        value_name = "PASSWORD"
    )]
    password: Option<String>,
    /// User of the password
    #[arg(long)]
    user: Option<String>,
    /// Number of the database
    #[arg(short = 'n', long, default_value_t = 0)]
    db: i64,
    /// All of this in one: redis://[[user]:password@]host[:port][/db]
    #[arg(short, long, conflicts_with_all = ["host", "port", "socket", "user", "db"])]
    url: Option<String>,
    /// Print this
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

impl Options {
    pub fn client(&self) -> Result<Client, RedisError> {
        if let Some(url) = &self.url {
            return Client::open(url.as_str());
        }
        let mut login = RedisConnectionInfo::default().set_db(self.db);
        if let Some(password) = &self.password {
            login = login.set_password(password);
        }
        if let Some(user) = &self.user {
            login = login.set_username(user);
        }
        let address = match &self.socket {
            Some(path) => ConnectionAddr::Unix(path.clone()),
            None => ConnectionAddr::Tcp(self.host.clone(), self.port),
        };
        Client::open(address.into_connection_info()?.set_redis_settings(login))
    }

    /// Where the server is, without passwords.
    pub fn shown(&self) -> String {
        if let Some(url) = &self.url {
            let rest = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
            return rest.rsplit_once('@').map_or(rest, |(_, rest)| rest).to_string();
        }
        let address = match &self.socket {
            Some(path) => path.display().to_string(),
            None => format!("{}:{}", self.host, self.port),
        };
        if self.db == 0 { address } else { format!("{address}/{}", self.db) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parse(words: &[&str]) -> Options {
        Options::try_parse_from([&["rq-top"], words].concat()).unwrap()
    }

    #[test]
    fn options_are_those_of_redis_cli() {
        let options = parse(&["-h", "::1", "-p", "7000", "-a", "secret", "-n", "3"]);
        assert_eq!(options.shown(), "::1:7000/3");
        let client = options.client().unwrap();
        let info = client.get_connection_info();
        assert_eq!(info.addr(), &ConnectionAddr::Tcp("::1".into(), 7000));
        assert_eq!((info.redis_settings().db(), info.redis_settings().password()), (3, Some("secret")));
    }

    #[test]
    fn a_url_says_it_all_and_its_password_is_not_shown() {
        let options = parse(&["--url", "redis://ada:secret@example:7000/3"]);
        assert_eq!(options.shown(), "example:7000/3");
        assert_eq!(options.client().unwrap().get_connection_info().redis_settings().username(), Some("ada"));
        assert!(Options::try_parse_from(["rq-top", "--url", "redis://x", "-p", "1"]).is_err());
        assert!(parse(&["--url", "http://x"]).client().is_err());
    }
}
