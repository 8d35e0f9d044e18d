//! A client: one process's connection to one server, and the locks that it gives out.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::watch;
use tokio::task::unconstrained;

#[cfg(feature = "embedded")]
use crate::backend::embedded::Engine;
use crate::backend::{Backend, EventReceiver};
use crate::chance::Chance;
use crate::clock::Clock;
use crate::config::Config;
#[cfg(feature = "redis")]
use crate::config::{Secret, Tls};
use crate::courier::{self, Courier};
use crate::error::{ConnectError, LockError, PingError};
use crate::fenced::FencedKey;
use crate::handle::Handle;
use crate::lease::Lease;
use crate::local::{Local, Parts, Spans, Tether};
use crate::lock::fair::FairLock;
use crate::lock::read_write::RwLock;
use crate::lock::reentrant::ReentrantLock;
use crate::name::{LockKeys, Namespace, cut_label};
use crate::scripts::{Kind, LockInfo};
use crate::ticket::ClientId;
use crate::wakeup::{self, Waiting};
use crate::watchdog;

/// A connection to a server, and the source of all locks on it. Cheap to clone; one for each process is enough,
/// however many locks and tasks it has.
///
/// A client has two connections (one for commands, one that hears messages) and three tasks of its own on the
/// runtime that it was connected on. They end when the last handle, guard and waiting future is gone, or at
/// [`close`](Client::close). Where that runtime ends first, waiters and guards get `Closed`.
#[derive(Clone)]
pub struct Client {
    tether: Arc<Tether>,
    config: Arc<Config>,
    ended: watch::Receiver<bool>,
}

impl Client {
    /// Connects to the server at `url` with the defaults of [`ClientBuilder`].
    ///
    /// URLs: `redis://[[user]:password@]host[:port][/database]`, `valkey://` for the same, `rediss://` and `valkeys://` for
    /// TLS (feature `tls`), `redis+unix://` for a Unix socket.
    ///
    /// # Errors
    /// See [`ConnectError`]. A server that is not there is [`ConnectError::Unavailable`], after 10 s.
    ///
    /// # Cancel safety
    /// Dropping the future closes what was opened.
    ///
    /// ```no_run
    /// # async fn f() -> Result<(), lockwright::ConnectError> {
    /// let client = lockwright::Client::connect("redis://127.0.0.1:6379").await?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "redis")]
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        Self::builder().url(url).connect().await
    }

    /// A client on an engine of its own, in this process (feature `embedded`): the same scripts and the same semantics
    /// without a server, for unit tests and examples. It lives on tokio's clock, so a test that pauses the time has
    /// leases that end when it says so.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use lockwright::Client;
    ///
    /// let client = Client::embedded();
    /// let guard = client.lock("order:42").lock().await?;
    /// assert!(client.lock("order:42").try_lock().await?.is_none());
    /// guard.unlock().await?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "embedded")]
    #[must_use]
    pub fn embedded() -> Self {
        Self::embedded_on(&Engine::new())
    }

    /// A client on an engine that it shares: each client is what a process is with a real server.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use lockwright::{Client, Engine};
    ///
    /// let engine = Engine::new();
    /// let (here, there) = (Client::embedded_on(&engine), Client::embedded_on(&engine));
    /// let _guard = here.lock("order:42").lock().await?;
    /// assert!(there.lock("order:42").try_lock().await?.is_none());
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "embedded")]
    #[must_use]
    pub fn embedded_on(engine: &Engine) -> Self {
        Self::start_embedded(engine, Config::default())
    }

    #[cfg(feature = "embedded")]
    fn start_embedded(engine: &Engine, config: Config) -> Self {
        let (client, clock, chance) = (ClientId::random(), Clock::tokio(), Chance::from_system());
        let (backend, events) = crate::backend::embedded::connect(engine, &config, client, clock.clone());
        Self::start(backend, events, config, client, clock, chance)
    }

    /// The way to a client with other settings.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use lockwright::{Client, Engine, Lease};
    /// use std::time::Duration;
    ///
    /// let client = Client::builder()
    ///     .namespace("shop")
    ///     .lease(Lease::renewed(Duration::from_secs(10)))
    ///     .label("web 7")
    ///     .embedded_on(&Engine::new())?; // with a server: .url("redis://127.0.0.1:6379").connect().await?
    /// assert!(client.lock("order:42").try_lock().await?.is_some());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Starts the client's tasks on the present runtime.
    pub(crate) fn start(
        backend: Arc<dyn Backend>,
        mut events: EventReceiver,
        config: Config,
        client: ClientId,
        clock: Clock,
        chance: Chance,
    ) -> Self {
        let (courier, parcels) = Courier::new();
        let spans = Spans {
            claim: config.claim,
            client_deadline: config.client_deadline,
            command_timeout: config.command_timeout,
            unavailable_after: config.unavailable_after,
            cache_idle: config.cache_idle,
        };
        let parts = Parts { client, spans, backend, courier, clock: clock.clone(), chance };
        let local = Local::new(parts);
        // That it is connected, for instance: whoever asks before the task hears of it would wait, and others overtake.
        if let Some(Some(event)) = unconstrained(events.next()).now_or_never() {
            local.told(event);
        }
        let patience = config.unavailable_after;
        let (has_ended, ended) = watch::channel(false);
        let stopped = || local.stopped();

        let (holds, waiters, sender) =
            (Orphans(local.clone()), Orphans(local.clone()), Orphans(local.clone()));
        let (sooner, stop, time) = (local.renew_sooner(), stopped(), clock.clone());
        tokio::spawn(async move { watchdog::run(holds.0.clone(), sooner, time, stop).await });
        let (sooner, stop, time) = (local.poll_sooner(), stopped(), clock.clone());
        tokio::spawn(async move { wakeup::run(waiters.0.clone(), events, sooner, time, stop).await });
        let stop = stopped();
        tokio::spawn(async move {
            courier::run(parcels, stop, clock, patience).await;
            sender.0.backend().close().await;
            has_ended.send_replace(true);
        });
        Self { tether: Tether::new(local), config: Arc::new(config), ended }
    }

    /// The reentrant lock of this name. No I/O; a name that no lock can have is reported by the first operation.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use lockwright::{Client, InvalidName, LockError};
    ///
    /// let client = Client::embedded();
    /// assert!(client.lock("order:42").try_lock().await?.is_some());
    /// assert_eq!(client.lock("").lock().await.err(), Some(LockError::InvalidName(InvalidName::Empty)));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn lock(&self, name: &str) -> ReentrantLock {
        ReentrantLock::new(self.handle(Kind::Reentrant, name))
    }

    /// The fair lock of this name. No I/O; a name that no lock can have is reported by the first operation. One name is
    /// one kind of lock: used as another one it gives [`LockError::KindMismatch`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = lockwright::Client::embedded();
    /// let guard = client.fair_lock("jobs").lock().await?;
    /// guard.unlock().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn fair_lock(&self, name: &str) -> FairLock {
        FairLock::new(self.handle(Kind::Fair, name))
    }

    /// The read/write lock of this name. No I/O; a name that no lock can have is reported by the first operation. One name
    /// is one kind of lock: used as another one it gives [`LockError::KindMismatch`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = lockwright::Client::embedded();
    /// let catalogue = client.rw_lock("catalogue");
    /// let (one, other) = (catalogue.read().await?, catalogue.read().await?);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn rw_lock(&self, name: &str) -> RwLock {
        RwLock::new(self.handle(Kind::ReadWrite, name))
    }

    /// The fenced value of this name: a text in Redis that refuses a fencing token smaller than the largest that has
    /// written. No I/O; a name that no key can have is reported by the first operation. See [`FencedKey`].
    #[must_use]
    pub fn fenced_key(&self, name: &str) -> FencedKey {
        FencedKey::new(self.tether.clone(), self.keys(name))
    }

    fn handle(&self, kind: Kind, name: &str) -> Handle {
        Handle {
            tether: self.tether.clone(),
            kind,
            keys: self.keys(name),
            lease: Ok(self.config.lease),
            owner: None,
            max_hold: None,
            label: self.config.label.clone(),
            keep: false,
        }
    }

    fn keys(&self, name: &str) -> Result<LockKeys, crate::error::InvalidName> {
        LockKeys::new(&self.config.namespace, name)
    }

    #[cfg(lockwright_internals)]
    pub(crate) fn entries(&self) -> usize {
        self.tether.local().entries()
    }

    /// Everything that the server knows of a lock, of whatever kind: for people, not for decisions. It is old when
    /// it arrives.
    ///
    /// # Errors
    /// See [`LockError`].
    ///
    /// # Cancel safety
    /// Cancel safe: it changes nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use lockwright::Client;
    ///
    /// let client = Client::embedded();
    /// let guard = client.lock("order:42").lock().await?;
    /// let info = client.inspect("order:42").await?;
    /// assert_eq!((info.token, info.waiting_count), (Some(guard.token()), 0));
    /// println!("{}", serde_json::to_string_pretty(&info)?);
    /// # Ok(()) }
    /// ```
    pub async fn inspect(&self, name: &str) -> Result<LockInfo, LockError> {
        let keys = self.keys(name)?;
        self.tether.local().inspect(keys).await
    }

    /// Ends the hold of a lock by force, if `token` (from [`inspect`](Client::inspect) or a guard) is still that of
    /// the present grant; `false` where it is not. (Where an answer was lost, the request is repeated, and `false` may also
    /// mean that the first one had released it.) The holder is told, and the next waiter gets
    /// the lock at once: **until the message has arrived, both hold it**, and only a resource that checks tokens
    /// keeps them apart. Of a lock that is read, the token is the readers' version, and all of them lose it, those too that
    /// came after it was looked up.
    ///
    /// # Errors
    /// See [`LockError`].
    ///
    /// # Cancel safety
    /// Once polled, the request is carried through.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use lockwright::{Client, LossReason};
    ///
    /// let client = Client::embedded();
    /// let stuck = client.lock("order:42").lock().await?;
    /// let token = client.inspect("order:42").await?.token.expect("it is held");
    /// assert!(client.force_release("order:42", token).await?);
    /// assert_eq!(stuck.lost().await, LossReason::TakenByForce);
    /// # Ok(()) }
    /// ```
    pub async fn force_release(&self, name: &str, token: u64) -> Result<bool, LockError> {
        let keys = self.keys(name)?;
        self.tether.local().force_release(keys, token).await
    }

    /// Asks the server for an answer, and returns the round trip.
    ///
    /// # Errors
    /// [`PingError::Unavailable`] where none comes within the command timeout; [`PingError::Unauthorized`] where the user
    /// may not send `PING`; [`PingError::Closed`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// println!("{:?}", lockwright::Client::embedded().ping().await?);
    /// # Ok(()) }
    /// ```
    pub async fn ping(&self) -> Result<Duration, PingError> {
        self.tether.local().ping().await
    }

    /// Closes the client: new calls and waiters get `Closed`, guards are lost with the reason
    /// [`Closed`](crate::LossReason::Closed) and their holds given back. Returns when everything that is to be sent
    /// is sent, or the server has been silent for `unavailable_after`. Calling it again waits for the same end.
    ///
    /// # Cancel safety
    /// The closing goes on in the background.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use lockwright::{Client, LockError, LossReason};
    ///
    /// let client = Client::embedded();
    /// let guard = client.lock("a").lock().await?;
    /// client.close().await;
    /// assert_eq!(guard.lost().await, LossReason::Closed);
    /// assert_eq!(client.lock("a").lock().await.err(), Some(LockError::Closed));
    /// # Ok(()) }
    /// ```
    pub async fn close(&self) {
        self.tether.local().close();
        let _ = self.ended.clone().wait_for(|&ended| ended).await;
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("namespace", &self.config.namespace)
            .field("closed", &self.tether.local().is_closed())
            .finish_non_exhaustive()
    }
}

/// Goes with a task: where the task ends early, with its runtime, nobody renews or sends any more, and everybody
/// who waits must hear it.
struct Orphans(Arc<Local>);

impl Drop for Orphans {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The settings of a [`Client`], and the way to connect it; from [`Client::builder`]. A setting outside its bounds is
/// reported when it connects, as [`ConnectError::InvalidSetting`] or the error of its own.
///
/// ```
/// use lockwright::{Client, Lease};
/// use std::time::Duration;
///
/// let builder = Client::builder()
///     .namespace("shop")
///     .lease(Lease::renewed(Duration::from_secs(10)))
///     .claim(Duration::from_secs(2))
///     .client_deadline(Duration::from_secs(8))
///     .command_timeout(Duration::from_millis(500))
///     .unavailable_after(Duration::from_secs(5))
///     .cache_idle(Duration::from_secs(30))
///     .client_name("web")
///     .label("web 7");
/// # drop(builder);
/// ```
#[derive(Clone, Debug, Default)]
pub struct ClientBuilder {
    #[cfg(feature = "redis")]
    url: Option<Secret>,
    #[cfg(feature = "redis")]
    tls: Tls,
    namespace: Option<String>,
    config: Config,
}

impl ClientBuilder {
    /// Where the server is; see [`Client::connect`]. `redis://127.0.0.1:6379` by default.
    #[cfg(feature = "redis")]
    #[must_use]
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.url = Some(Secret::new(url));
        self
    }

    /// What `rediss://` trusts and shows: PEM texts of the authorities that may sign the server's certificate
    /// (`None`: the system's), and of the client's certificate chain with its private key.
    #[cfg(all(feature = "tls", feature = "redis"))]
    #[must_use]
    pub fn tls(mut self, authorities: Option<String>, identity: Option<(String, String)>) -> Self {
        let identity = identity.map(|(chain, key)| (chain, Secret::new(key)));
        self.tls = Tls { authorities, identity };
        self
    }

    /// What all keys and channels begin with: 1 to 64 of `A-Z a-z 0-9 . _ : -`, `lw` by default. Clients of
    /// different namespaces do not see each other's locks.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// The lease of handles that name no other: 30 s, renewed, by default.
    #[must_use]
    pub fn lease(mut self, lease: Lease) -> Self {
        self.config.lease = lease;
        self
    }

    /// The first, short lease of a hold that is handed over, which its new holder's first renewal makes a full one:
    /// 3 s by default, from 100 ms to 1 min; above 5 s the client deadline must be longer, too. A waiter that was granted
    /// the lock and is gone costs the others this long. Whoever waits asks again in half of it, so whatever is not told
    /// by a message is noticed by then.
    #[must_use]
    pub fn claim(mut self, claim: Duration) -> Self {
        self.config.claim = claim;
        self
    }

    /// For how long the server keeps the places of a client of which it hears nothing: 10 s by default, from 1 s
    /// (and at least twice the claim) to 10 min.
    #[must_use]
    pub fn client_deadline(mut self, deadline: Duration) -> Self {
        self.config.client_deadline = deadline;
        self
    }

    /// How long one command may take before it counts as unanswered and is repeated: 1 s by default, from 10 ms to
    /// 1 min.
    #[must_use]
    pub fn command_timeout(mut self, timeout: Duration) -> Self {
        self.config.command_timeout = timeout;
        self
    }

    /// How long an operation waits for a server that does not answer: 10 s by default, from 10 ms to 1 h. Waiting
    /// for another holder is not bounded by it.
    #[must_use]
    pub fn unavailable_after(mut self, limit: Duration) -> Self {
        self.config.unavailable_after = limit;
        self
    }

    /// How long a [cached](crate::RwLock::cached) read is kept when nobody reads any more: 1 min by default, from 10 ms
    /// to 24 h. A writer that comes does not wait for it.
    #[must_use]
    pub fn cache_idle(mut self, idle: Duration) -> Self {
        self.config.cache_idle = idle;
        self
    }

    /// The name of this client's connections in `CLIENT LIST`.
    #[must_use]
    pub fn client_name(mut self, name: impl Into<String>) -> Self {
        self.config.client_name = Some(name.into());
        self
    }

    /// A text that is stored beside this client's holds and places, for people who [inspect](Client::inspect) them:
    /// a host name, a job's number. It is cut to 128 bytes.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.config.label = Some(cut_label(&label.into()).into());
        self
    }

    /// Connects.
    ///
    /// # Errors
    /// See [`ConnectError`].
    ///
    /// # Cancel safety
    /// Dropping the future closes what was opened.
    #[cfg(feature = "redis")]
    pub async fn connect(self) -> Result<Client, ConnectError> {
        use crate::backend::redis::{Setup, connect};

        let config = checked(self.config, self.namespace.as_deref())?;
        let url = self.url.unwrap_or_else(|| Secret::new("redis://127.0.0.1:6379"));
        let (client, clock, chance) = (ClientId::random(), Clock::boot(), Chance::from_system());
        let (config_, clock_, chance_) = (config.clone(), clock.clone(), chance.clone());
        let setup = Setup { url, tls: self.tls, config: config_, client, clock: clock_, chance: chance_ };
        let (backend, events) = connect(setup).await?;
        Ok(Client::start(backend, events, config, client, clock, chance))
    }
}

#[cfg(feature = "embedded")]
impl ClientBuilder {
    /// A client with these settings on an engine in this process; see [`Client::embedded_on`]. The settings of a
    /// network have no effect.
    ///
    /// # Errors
    /// [`ConnectError`], where a setting is invalid.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use lockwright::{Client, ConnectError, Engine};
    /// use std::time::Duration;
    ///
    /// let engine = Engine::new();
    /// let invalid = Client::builder().claim(Duration::ZERO).embedded_on(&engine);
    /// assert!(matches!(invalid, Err(ConnectError::InvalidSetting { .. })));
    /// # Ok(()) }
    /// ```
    pub fn embedded_on(self, engine: &Engine) -> Result<Client, ConnectError> {
        Ok(Client::start_embedded(engine, checked(self.config, self.namespace.as_deref())?))
    }
}

/// Checks every setting, so that a bad one is an error and never a surprise later.
fn checked(mut config: Config, namespace: Option<&str>) -> Result<Config, ConnectError> {
    if let Some(namespace) = namespace {
        config.namespace = Namespace::new(namespace)?;
    }
    config.lease.check()?;
    let (millis, secs) = (Duration::from_millis, Duration::from_secs);
    within("claim", config.claim, millis(100), secs(60))?;
    within("client_deadline", config.client_deadline, secs(1).max(config.claim * 2), secs(600))?;
    within("command_timeout", config.command_timeout, millis(10), secs(60))?;
    within("unavailable_after", config.unavailable_after, millis(10), secs(3600))?;
    within("cache_idle", config.cache_idle, millis(10), secs(24 * 3600))?;
    Ok(config)
}

fn within(what: &str, value: Duration, least: Duration, most: Duration) -> Result<(), ConnectError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(ConnectError::InvalidSetting {
        reason: format!("{what} is from {least:?} to {most:?}, not {value:?}"),
    })
}
