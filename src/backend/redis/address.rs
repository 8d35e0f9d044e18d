//! Where a server is and who we are there, read from a URL as the common Redis clients read it.
//!
//! | form | reaches |
//! |---|---|
//! | `redis://[[user]:password@]host[:port][/db]`, also `valkey://` | TCP, port 6379 unless told |
//! | `rediss://…`, also `valkeys://` | the same through TLS |
//! | `redis+unix://[[user]:password@]/path`, also `valkey+unix://` and `unix://` | a Unix socket |
//!
//! `?db=`, `?user=` (or `username`) and `?password=` (or `pass`) say the same as the other places, which a socket's
//! path leaves no room for. User, password and path are percent-decoded.
//!
//! Everything that we do not understand is refused: a misspelt option that is ignored sends locks to the wrong
//! database. A reason never repeats a part of the URL, which may be a password in the wrong place.

use std::fmt;
use std::path::PathBuf;

use percent_encoding::percent_decode_str;
use url::{Host, Url};

use crate::config::Secret;
use crate::error::ConnectError;

const DEFAULT_PORT: u16 = 6379;

/// One server, and who we are there.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    pub place: Place,
    pub tls: bool,
    pub db: u32,
    /// Who we are; `None` where the server asks for nothing.
    pub login: Option<Login>,
}

/// What to connect to.
#[derive(Clone, PartialEq, Eq)]
pub enum Place {
    /// An IPv6 address without its brackets.
    Tcp {
        host: String,
        port: u16,
    },
    Unix(PathBuf),
}

/// A password, and whose it is: the default user's where no user is named.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Login {
    pub user: Option<String>,
    pub password: Secret,
}

impl Address {
    /// Reads `url`.
    pub fn parse(url: &str) -> Result<Self, ConnectError> {
        read(url).map_err(|reason| ConnectError::InvalidUrl { reason: reason.to_owned() })
    }
}

/// Host and port, or the path: what a log line may say.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Place::Tcp { host, port } => write!(f, "{host}:{port}"),
            Place::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self}, tls: {}, db: {})", self.tls, self.db)
    }
}

type Reason = &'static str;

fn read(text: &str) -> Result<Address, Reason> {
    let (scheme, rest) = text.split_once("://").ok_or("it begins with no scheme, redis:// for instance")?;
    let (unix, tls) = match scheme {
        "redis" | "valkey" => (false, false),
        "rediss" | "valkeys" => (false, true),
        "redis+unix" | "valkey+unix" | "unix" => (true, false),
        _ => return Err("its scheme is none of redis, rediss, valkey, valkeys and redis+unix"),
    };
    if tls && !cfg!(feature = "tls") {
        // The client crate would connect in plain text, password and all.
        return Err("TLS needs the feature `tls` of this crate");
    }
    // The standard knows no credentials without a host; a socket has no host.
    let url = match rest.split_once('/') {
        Some((user, path)) if unix && user.ends_with('@') => format!("{scheme}://{user}socket/{path}"),
        Some((host, _)) if unix && !host.is_empty() => {
            return Err("the path of a socket begins with a slash");
        }
        _ => text.to_owned(),
    };
    let url = Url::parse(&url)
        .map_err(|_| "it is not a URL; is every special character of the password escaped?")?;
    if url.fragment().is_some() {
        return Err("it contains a #, which is written %23 in a user or password");
    }
    let query = Query::read(&url)?;
    let path_db = if unix { None } else { db_of_path(url.path())? };
    Ok(Address {
        place: if unix { socket(&url)? } else { host(&url)? },
        tls,
        db: once(path_db, query.db, "it names the database twice")?.unwrap_or(0),
        login: login(&url, query.user, query.password)?,
    })
}

fn host(url: &Url) -> Result<Place, Reason> {
    let host = match url.host() {
        Some(Host::Domain(name)) => decode(name)?,
        Some(Host::Ipv4(address)) => address.to_string(),
        Some(Host::Ipv6(address)) => address.to_string(),
        None => return Err("it names no host"),
    };
    if url.port() == Some(0) {
        return Err("a port is between 1 and 65535");
    }
    Ok(Place::Tcp { host, port: url.port().unwrap_or(DEFAULT_PORT) })
}

fn socket(url: &Url) -> Result<Place, Reason> {
    match decode(url.path())? {
        path if path.is_empty() || path == "/" => Err("it names no socket"),
        path => Ok(Place::Unix(path.into())),
    }
}

fn db_of_path(path: &str) -> Result<Option<u32>, Reason> {
    match path.trim_start_matches('/') {
        "" => Ok(None),
        digits => number(digits).map(Some),
    }
}

fn number(digits: &str) -> Result<u32, Reason> {
    digits.parse().map_err(|_| "the database is not a number")
}

fn login(url: &Url, user: Option<String>, password: Option<String>) -> Result<Option<Login>, Reason> {
    let in_front = Some(url.username()).filter(|user| !user.is_empty()).map(decode).transpose()?;
    let user = once(in_front, user, "it names the user twice")?;
    let password = once(url.password().map(decode).transpose()?, password, "it has two passwords")?;
    match (user, password) {
        (user, Some(password)) => Ok(Some(Login { user, password: Secret::new(password) })),
        (None, None) => Ok(None),
        // Some clients take it for a password and some ignore it: neither is safe to guess.
        (Some(_), None) => Err("it has a user and no password; a password alone is written :password@"),
    }
}

#[derive(Default)]
struct Query {
    db: Option<u32>,
    user: Option<String>,
    password: Option<String>,
}

impl Query {
    fn read(url: &Url) -> Result<Self, Reason> {
        let mut query = Self::default();
        for pair in url.query().unwrap_or("").split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').ok_or("an option has no value")?;
            // Not as a form: there a + is a space, in a password it is a +.
            let value = decode(value)?;
            match key {
                "db" => query.db = once(query.db, Some(number(&value)?), "it names the database twice")?,
                "user" | "username" => query.user = once(query.user, Some(value), "it names the user twice")?,
                "password" | "pass" => {
                    query.password = once(query.password, Some(value), "it has two passwords")?;
                }
                _ => return Err("it has an option other than db, user and password"),
            }
        }
        Ok(query)
    }
}

fn once<T>(first: Option<T>, second: Option<T>, twice: Reason) -> Result<Option<T>, Reason> {
    match (first, second) {
        (Some(_), Some(_)) => Err(twice),
        (first, second) => Ok(first.or(second)),
    }
}

fn decode(text: &str) -> Result<String, Reason> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(Into::into).map_err(|_| "a part of it is not UTF-8 once decoded")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16, db: u32, login: Option<(Option<&str>, &str)>) -> Address {
        let place = Place::Tcp { host: host.into(), port };
        Address { place, tls: false, db, login: login.map(as_login) }
    }

    fn unix(path: &str, db: u32, login: Option<(Option<&str>, &str)>) -> Address {
        Address { place: Place::Unix(path.into()), tls: false, db, login: login.map(as_login) }
    }

    fn as_login((user, password): (Option<&str>, &str)) -> Login {
        Login { user: user.map(Into::into), password: Secret::new(password) }
    }

    #[test]
    fn what_is_understood() {
        let cases = [
            ("redis://h", tcp("h", 6379, 0, None)),
            ("redis://h/", tcp("h", 6379, 0, None)),
            ("valkey://example.org:7000/3", tcp("example.org", 7000, 3, None)),
            ("redis://127.0.0.1/0", tcp("127.0.0.1", 6379, 0, None)),
            ("redis://[::1]:1/300", tcp("::1", 1, 300, None)),
            ("redis://h?db=2", tcp("h", 6379, 2, None)),
            ("redis://:pw@h", tcp("h", 6379, 0, Some((None, "pw")))),
            ("redis://u:p%40%2F%23%3a@h/1", tcp("h", 6379, 1, Some((Some("u"), "p@/#:")))),
            ("redis://%C3%A9:+%20@h", tcp("h", 6379, 0, Some((Some("é"), "+ ")))),
            ("redis://h?user=u&pass=a+b%26", tcp("h", 6379, 0, Some((Some("u"), "a+b&")))),
            ("redis+unix:///tmp/r.sock", unix("/tmp/r.sock", 0, None)),
            ("valkey+unix:///tmp/a%20b?db=4", unix("/tmp/a b", 4, None)),
            ("unix://:pw@/tmp/r.sock", unix("/tmp/r.sock", 0, Some((None, "pw")))),
            ("redis+unix://u:p@/tmp/r?db=1", unix("/tmp/r", 1, Some((Some("u"), "p")))),
            ("unix:///s?username=u&password=p", unix("/s", 0, Some((Some("u"), "p")))),
        ];
        for (url, address) in cases {
            assert_eq!(Address::parse(url), Ok(address), "{url}");
        }
    }

    #[test]
    fn what_is_refused_without_being_repeated() {
        let cases = [
            "",
            "h:6379",
            "http://sesame@h",
            "redis:h",
            "redis://",
            "redis://:sesame@",
            "redis:///0",
            "redis://h:0",
            "redis://h:x",
            "redis://h:65536",
            "redis://h/x",
            "redis://h/1/2",
            "redis://h/-1",
            "redis://h/1?db=1",
            "redis://sesame@h",
            "redis://u:@h",
            "redis://:ses#ame@h",
            "redis://h#sesame",
            "redis://:ses/ame@h",
            "redis://h?password",
            "redis://h?sesame=1",
            "redis://:sesame@h?pass=sesame",
            "redis://h?pass=a&pass=b",
            "redis://:%ff@h",
            "redis://u:p@h?user=v",
            "unix://",
            "unix:///",
            "unix://sesame",
            "unix://tmp/r.sock",
            "redis://h?db=x",
            "redis://[::1",
            "redis://h h",
            "redis+unix://u@/s",
        ];
        for url in cases {
            let Err(ConnectError::InvalidUrl { reason }) = Address::parse(url) else {
                panic!("{url} is taken")
            };
            assert!(!reason.contains("sesame") && !reason.contains("ses"), "{url}: {reason}");
        }
    }

    #[test]
    fn tls_is_used_or_refused_and_never_dropped() {
        for url in ["rediss://h", "valkeys://h:6380/1"] {
            assert_eq!(
                Address::parse(url).map(|address| address.tls).ok(),
                cfg!(feature = "tls").then_some(true)
            );
        }
    }

    #[test]
    fn debug_and_display_show_no_secret() {
        let address = Address::parse("redis://u:sesame@[::1]:7000/3").unwrap();
        assert_eq!(format!("{address} {address:?}"), "[::1]:7000 Address([::1]:7000, tls: false, db: 3)");
        assert!(!format!("{:?}", address.login).contains("sesame"));
    }
}
