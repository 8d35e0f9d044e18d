//! A wire over the crate fred: the only file that names it. Facts are of fred 10.1.
//!
//! fred is used as a codec and a router task, and for nothing above them: one centralized client per wire, without a
//! reconnect policy, so that its task ends with the connection. Its `Debug` of a configuration shows the password,
//! so none of its types is printed.
//!
//! How its words become ours; each line is tested against a live situation in `tests/wire.rs`:
//!
//! | fred says | outcome |
//! |---|---|
//! | a frame | reply, or server error |
//! | `Canceled`, "Connection closed unexpectedly." (the answer to `fail_fast`) | not sent |
//! | "Failed to send command to router." | not sent |
//! | all else: `Timeout`, `IO`, "channel closed", other `Canceled`, ... | unknown |

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;

use fred::bytes::Bytes;
use fred::clients::{Client, Pipeline};
use fred::error::{Error, ErrorKind};
use fred::interfaces::{AuthInterface, ClientLike, EventInterface, PubsubInterface, Resp3Frame};
use fred::types::config::{
    Config, ConnectionConfig, Options, PerformanceConfig, Server, ServerConfig, TcpConfig,
};
use fred::types::{ClusterHash, ConnectHandle, CustomCommand, Message, RespVersion, Value as FredValue};
use socket2::TcpKeepalive;
use tokio::sync::{broadcast, watch};

use crate::backend::redis::address::{Address, Place};
use crate::backend::{Failure, ServerError, Value};
use crate::config::Tls;
use crate::error::ConnectError;
use crate::scripts::Words;

use super::{Heard, NoWire, server_error};

/// Messages that wait for a reader that is slow; beyond it the reader hears that it lags. fred's default is 32.
const MESSAGE_CAPACITY: usize = 8_192;
const KEEP_ALIVE: Duration = Duration::from_secs(15);

#[derive(Clone)]
pub struct Dialer {
    config: Config,
    /// Who logs in; also in the configuration, which must not be printed.
    shown: String,
}

impl std::fmt::Debug for Dialer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Dialer({})", self.shown)
    }
}

impl Dialer {
    pub fn new(address: &Address, tls: &Tls) -> Result<Self, ConnectError> {
        let login = address.login.as_ref();
        let config = Config {
            fail_fast: true,
            username: login.and_then(|login| login.user.clone()),
            password: login.map(|login| login.password.reveal().to_owned()),
            server: server(&address.place),
            // A server that does not know HELLO repeats its arguments in the error, which fred logs. So a password
            // goes into AUTH, and HELLO follows without it.
            version: if login.is_some() { RespVersion::RESP2 } else { RespVersion::RESP3 },
            #[cfg(feature = "tls")]
            tls: address.tls.then(|| tls::config(tls)).transpose()?,
            ..Config::default()
        };
        #[cfg(not(feature = "tls"))]
        let _ = tls;
        Ok(Self { config, shown: address.to_string() })
    }

    pub async fn connect(&self, limit: Duration) -> Result<Connection, NoWire> {
        let settings = ConnectionConfig {
            connection_timeout: limit,
            internal_command_timeout: limit,
            // A second attempt would run a script twice when only its reply was lost.
            max_command_attempts: 1,
            tcp: TcpConfig {
                // Off by default; then the second of two commands waits for the acknowledgement of the first.
                nodelay: Some(true),
                keepalive: Some(TcpKeepalive::new().with_time(KEEP_ALIVE).with_interval(KEEP_ALIVE)),
                ..TcpConfig::default()
            },
            ..ConnectionConfig::default()
        };
        let performance = PerformanceConfig {
            default_command_timeout: limit,
            broadcast_channel_capacity: MESSAGE_CAPACITY,
            ..PerformanceConfig::default()
        };
        let client = Client::new(self.config.clone(), Some(performance), Some(settings), None);
        // Not `init`: it owns the task's handle while it waits, and cancelling it leaks the task and its socket.
        let waiting = client.clone();
        let mut connected = Box::pin(async move { waiting.wait_for_connect().await });
        // Polled once before there is a task: fred looks at the state, then listens, and a connection that is made
        // between the two is waited for for ever.
        let early = (&mut connected).now_or_never();
        let connection = Connection::new(client);
        if early.is_none() {
            connection.until(connected).await?;
        }
        if self.config.version == RespVersion::RESP2 {
            let hello = connection.client.hello(RespVersion::RESP3, None, None).await;
            hello.map_err(|error| no_wire(&error))?;
        }
        Ok(connection)
    }
}

fn server(place: &Place) -> ServerConfig {
    match place {
        Place::Unix(path) => ServerConfig::Unix { path: path.clone() },
        Place::Tcp { host, port } => {
            // fred glues host and port together with a colon to resolve them.
            let resolved = if host.contains(':') { format!("[{host}]") } else { host.clone() };
            #[cfg(feature = "tls")]
            let server = Server::new_with_tls(resolved, *port, Some(host.clone()));
            #[cfg(not(feature = "tls"))]
            let server = Server::new(resolved, *port);
            ServerConfig::Centralized { server }
        }
    }
}

pub struct Connection {
    client: Client,
    /// fred's router: it ends with the connection. `None` once it was seen to end.
    router: Mutex<Option<ConnectHandle>>,
    ended: watch::Sender<bool>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Connection(ended: {})", *self.ended.borrow())
    }
}

impl Connection {
    fn new(client: Client) -> Self {
        let router = Mutex::new(Some(client.connect()));
        Self { client, router, ended: watch::Sender::new(false) }
    }

    async fn until(&self, connected: impl Future<Output = Result<(), Error>>) -> Result<(), NoWire> {
        tokio::select! {
            biased;
            connected = connected => connected.map_err(|error| no_wire(&error)),
            end = self.end() => match end {
                Err(error) => Err(no_wire(&error)),
                Ok(()) => Err(NoWire::Unreachable("the connection was closed".into())),
            },
        }
    }

    pub async fn call(&self, name: &'static str, words: Words, limit: Duration) -> Result<Value, Failure> {
        if *self.ended.borrow() {
            // A call on an ended client is queued for nobody and waits for its whole timeout.
            return Err(Failure::NotSent);
        }
        let client = self.client.with_options(&options(limit));
        // Not `evalsha`: that interface ignores the options in silence.
        let command = CustomCommand::new_static(name, ClusterHash::FirstKey, false);
        let args = values(words);
        let mut ended = self.ended.subscribe();
        tokio::select! {
            biased;
            answer = client.custom_raw(command, args) => answer.map_err(failure).and_then(reply),
            // What was queued between the end of the router and `ended` is never answered.
            _ = ended.wait_for(|&ended| ended) => Err(Failure::Unknown("the connection was closed".into())),
        }
    }

    pub async fn subscribe(&self, channel: &str, limit: Duration) -> Result<Messages, Failure> {
        let messages = Messages(self.client.message_rx());
        // fred says yes before the server does, and keeps no place for a refusal: it is the answer to whatever
        // waits for one then, and is dropped where nothing does. A PING whose place is taken before anything is
        // read gets it; of two commands that are sent one by one, the refusal may come between.
        let pipeline = Pipeline::from(self.client.with_options(&options(limit)));
        pipeline.subscribe(channel).await.map_err(failure)?;
        let _: FredValue = pipeline.ping(None).await.map_err(failure)?;
        match pipeline.last::<FredValue>().await {
            Ok(_) => Ok(messages),
            Err(error) => match server_said(&error) {
                Some(said) if is_of_ping(&said) => Ok(messages),
                Some(said) => Err(Failure::Server(said)),
                None => Err(failure(error)),
            },
        }
    }

    pub async fn closed(&self) {
        let _ = self.end().await;
    }

    pub async fn discard(&self) {
        self.abort();
        self.closed().await;
        self.ended.send_replace(true);
    }

    /// How the router ended.
    async fn end(&self) -> Result<(), Error> {
        poll_fn(|context| {
            let mut router = self.router();
            let Some(handle) = router.as_mut() else { return Poll::Ready(Ok(())) };
            let Poll::Ready(joined) = Pin::new(handle).poll(context) else { return Poll::Pending };
            *router = None;
            Poll::Ready(joined.unwrap_or(Ok(())))
        })
        .await
    }

    fn abort(&self) {
        if let Some(router) = self.router().as_ref() {
            router.abort();
        }
    }

    fn router(&self) -> MutexGuard<'_, Option<ConnectHandle>> {
        self.router.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Without this a client that is merely dropped keeps its task and its socket for good.
impl Drop for Connection {
    fn drop(&mut self) {
        self.abort();
    }
}

#[derive(Debug)]
pub struct Messages(broadcast::Receiver<Message>);

impl Messages {
    pub async fn next(&mut self) -> Heard {
        match self.0.recv().await {
            Ok(message) => Heard::Message(message.value.into_owned_bytes().unwrap_or_default()),
            Err(broadcast::error::RecvError::Lagged(_)) => Heard::Lagged,
            Err(broadcast::error::RecvError::Closed) => Heard::Closed,
        }
    }
}

/// One attempt, on the connection that is there, and no longer than `limit`.
fn options(limit: Duration) -> Options {
    Options { max_attempts: Some(1), fail_fast: true, timeout: Some(limit), ..Options::default() }
}

fn values(words: Words) -> Vec<FredValue> {
    let (text, ends) = words.into_parts();
    let (text, mut start) = (Bytes::from(text), 0);
    let value = |end| FredValue::Bytes(text.slice(std::mem::replace(&mut start, end)..end));
    ends.into_iter().map(value).collect()
}

fn reply(frame: Resp3Frame) -> Result<Value, Failure> {
    let text = |data: &[u8]| String::from_utf8_lossy(data).into_owned();
    Ok(match frame {
        Resp3Frame::Null => Value::Nil,
        Resp3Frame::Number { data, .. } => Value::Int(data),
        Resp3Frame::Boolean { data, .. } => Value::Int(data.into()),
        Resp3Frame::Double { data, .. } => Value::Bulk(data.to_string().into_bytes()),
        Resp3Frame::SimpleString { data, .. } => Value::Status(text(&data)),
        Resp3Frame::BlobString { data, .. }
        | Resp3Frame::VerbatimString { data, .. }
        | Resp3Frame::BigNumber { data, .. } => Value::Bulk(data.into()),
        Resp3Frame::SimpleError { data, .. } => return Err(Failure::Server(server_error(&data))),
        Resp3Frame::BlobError { data, .. } => return Err(Failure::Server(server_error(&text(&data)))),
        Resp3Frame::Array { data, .. } | Resp3Frame::Push { data, .. } => {
            Value::Array(data.into_iter().map(reply).collect::<Result<_, _>>()?)
        }
        Resp3Frame::Set { data, .. } => Value::Array(data.into_iter().map(reply).collect::<Result<_, _>>()?),
        Resp3Frame::Map { data, .. } => {
            let flat = data.into_iter().flat_map(|(key, value)| [key, value]);
            Value::Array(flat.map(reply).collect::<Result<_, _>>()?)
        }
        _ => return Err(Failure::Unknown("the reply is of no type that a script returns".into())),
    })
}

/// The table of this module's page.
fn failure(error: Error) -> Failure {
    match (error.kind(), error.details()) {
        (ErrorKind::Canceled, "Connection closed unexpectedly.") => Failure::NotSent,
        (_, "Failed to send command to router.") => Failure::NotSent,
        _ => Failure::Unknown(error.to_string()),
    }
}

/// The server's words, where `error` is made of them: outside of a frame fred mixes them with its own.
fn server_said(error: &Error) -> Option<ServerError> {
    use ErrorKind::{Auth, Cluster, InvalidArgument, InvalidCommand, Unknown};
    let first = error.details().split_whitespace().next().unwrap_or_default();
    let code = first.len() > 2 && first.bytes().all(|byte| byte.is_ascii_uppercase());
    let kind = matches!(error.kind(), Auth | Cluster | InvalidArgument | InvalidCommand | Unknown);
    (code && kind).then(|| server_error(error.details()))
}

/// Whether an error can be that of the PING behind a SUBSCRIBE, and not of the SUBSCRIBE: then that has succeeded.
fn is_of_ping(error: &ServerError) -> bool {
    match error.code.as_str() {
        // These stop PING, and no SUBSCRIBE.
        "MISCONF" | "MASTERDOWN" | "LOADING" => true,
        "NOPERM" => error.text.contains("'ping'"),
        // Where PING is disabled.
        _ => error.text.starts_with("ERR unknown command") && error.text.contains("PING"),
    }
}

fn no_wire(error: &Error) -> NoWire {
    if let Some(error) = server_said(error) {
        NoWire::Refused(error)
    } else if let Some(reason) = error.details().strip_prefix("Custom { kind: InvalidData, error: ") {
        // rustls speaks through `std::io`.
        NoWire::Untrusted(reason.trim_end_matches([' ', '}']).to_owned())
    } else {
        NoWire::Unreachable(error.to_string())
    }
}

#[cfg(feature = "tls")]
mod tls {
    use std::sync::Arc;

    use fred::rustls::client::WantsClientCert;
    use fred::rustls::crypto::ring;
    use fred::rustls::pki_types::pem::PemObject;
    use fred::rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use fred::rustls::{ClientConfig, ConfigBuilder, RootCertStore};
    use fred::types::config::{TlsConfig, TlsConnector};

    use crate::config::{Secret, Tls};
    use crate::error::ConnectError;

    pub fn config(tls: &Tls) -> Result<TlsConfig, ConnectError> {
        // The provider is named: where other crates of a program bring in a second one, the default panics.
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| invalid(format!("TLS: {error}")))?
            .with_root_certificates(roots(tls)?);
        let config = match &tls.identity {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => with_identity(builder, chain, key)?,
        };
        Ok(TlsConnector::from(config).into())
    }

    fn roots(tls: &Tls) -> Result<RootCertStore, ConnectError> {
        let mut roots = RootCertStore::empty();
        match &tls.authorities {
            Some(pem) => {
                for authority in certificates(pem, "authorities")? {
                    roots.add(authority).map_err(|error| invalid(format!("TLS authorities: {error}")))?;
                }
            }
            None => {
                roots.add_parsable_certificates(fred::rustls_native_certs::load_native_certs().certs);
            }
        }
        Ok(roots)
    }

    fn with_identity(
        builder: ConfigBuilder<ClientConfig, WantsClientCert>,
        chain: &str,
        key: &Secret,
    ) -> Result<ClientConfig, ConnectError> {
        let chain = certificates(chain, "client certificate")?;
        let key = PrivateKeyDer::from_pem_slice(key.reveal().as_bytes())
            .map_err(|_| invalid("the TLS client key is no PEM private key".into()))?;
        builder.with_client_auth_cert(chain, key).map_err(|error| invalid(format!("TLS identity: {error}")))
    }

    fn certificates(pem: &str, what: &str) -> Result<Vec<CertificateDer<'static>>, ConnectError> {
        let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
        match read {
            Ok(certificates) if !certificates.is_empty() => Ok(certificates),
            _ => Err(invalid(format!("the TLS {what}: no PEM certificates"))),
        }
    }

    fn invalid(reason: String) -> ConnectError {
        ConnectError::InvalidSetting { reason }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn client() -> (Client, TcpListener) {
        // It is connected to, and never answers.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::parse(&format!("redis://{}", listener.local_addr().unwrap())).unwrap();
        let dialer = Dialer::new(&address, &Tls::default()).unwrap();
        (Client::new(dialer.config, None, None, None), listener)
    }

    #[tokio::test]
    async fn what_fred_does_not_send_is_not_sent() {
        let ping = || CustomCommand::new_static("PING", ClusterHash::FirstKey, false);
        let (client, _listener) = client();
        let fast = client.with_options(&options(Duration::from_secs(5)));
        let early = fast.custom_raw(ping(), Vec::<FredValue>::new()).await.unwrap_err();
        assert_eq!(failure(early), Failure::NotSent);
        let router = client.connect();
        // The router takes the queue when it is first polled, and drops it when it is aborted.
        tokio::task::yield_now().await;
        router.abort();
        let _ = router.await;
        let slow = client.with_options(&Options { fail_fast: false, ..options(Duration::from_secs(5)) });
        let late = slow.custom_raw(ping(), Vec::<FredValue>::new()).await.unwrap_err();
        assert_eq!(failure(late), Failure::NotSent);
    }
}
