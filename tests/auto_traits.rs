//! Which auto traits the public types and futures have, and what users write that depends on them. Most of this
//! fails by not compiling.

use std::error::Error;
use std::fmt::Debug;
use std::future::Future;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lockwright::*;

/// Says what a type implements: the inherent constants hide the trait's where their bounds hold.
struct Probe<T>(std::marker::PhantomData<T>);

trait Otherwise {
    const SEND: &str = "";
    const SYNC: &str = "";
    const UNPIN: &str = "";
    const CLONE: &str = "";
}

impl<T> Otherwise for Probe<T> {}

impl<T: Send> Probe<T> {
    const SEND: &str = "S";
}

impl<T: Sync> Probe<T> {
    const SYNC: &str = "Y";
}

impl<T: Unpin> Probe<T> {
    const UNPIN: &str = "U";
}

impl<T: Clone> Probe<T> {
    const CLONE: &str = "C";
}

/// What a type implements, as the letters of `Send`, `sYnc`, `Unpin`, `Clone`.
macro_rules! traits_of {
    ($type:ty) => {{
        fn is_static_and_shows_itself<T: 'static + Debug>() {}
        is_static_and_shows_itself::<$type>();
        [<Probe<$type>>::SEND, <Probe<$type>>::SYNC, <Probe<$type>>::UNPIN, <Probe<$type>>::CLONE].concat()
    }};
}

macro_rules! table {
    ($($type:ty => $traits:literal,)*) => {
        &[$((stringify!($type), traits_of!($type), $traits)),*]
    };
}

#[test]
fn public_types_keep_their_auto_traits() {
    let table: &[(&str, String, &str)] = table! {
        Client => "SYUC",
        ClientBuilder => "SYUC",
        Engine => "SYUC",
        ReentrantLock => "SYUC",
        FairLock => "SYUC",
        RwLock => "SYUC",
        Stamp => "SYUC",
        Position => "SYUC",
        // They carry a guard, or what becomes one.
        Place => "SYU",
        Step => "SYU",
        FencedKey => "SYUC",
        FencedValue => "SYUC",
        // A guard is one hold: whoever could clone it could release twice.
        Guard => "SYU",
        ReadGuard => "SYU",
        WriteGuard => "SYU",
        Lost => "SYUC",
        Renewal => "SYUC",
        Owner => "SYUC",
        Lease => "SYUC",
        LockInfo => "SYUC",
        HoldInfo => "SYUC",
        WaitInfo => "SYUC",
        Kind => "SYUC",
        Mode => "SYUC",
        LossReason => "SYUC",
        ConnectError => "SYUC",
        DowngradeError => "SYUC",
        ExtendError => "SYUC",
        FencedError => "SYUC",
        InvalidLease => "SYUC",
        InvalidName => "SYUC",
        InvalidNamespace => "SYUC",
        LockError => "SYUC",
        NotObtained => "SYUC",
        PingError => "SYUC",
        RunError => "SYUC",
        UnlockError => "SYUC",
        // What the probe says of a type that has less.
        std::rc::Rc<()> => "UC",
        std::cell::RefCell<()> => "SUC",
        std::sync::MutexGuard<'static, ()> => "YU",
        std::marker::PhantomPinned => "SYC",
    };
    for (name, found, wanted) in table {
        assert_eq!(found, wanted, "{name}");
    }
}

/// A public type that is missing in the table above fails here: the names are those that lib.rs exports.
#[test]
fn every_public_type_is_in_the_table() {
    let lib = include_str!("../src/lib.rs");
    let table = include_str!("auto_traits.rs");
    let exports = lib.split("pub use ").skip(1).filter(|text| !text.starts_with("crate::"));
    let mut seen = 0;
    for statement in exports {
        let statement = statement.split(';').next().unwrap_or_default();
        let names = statement.split(|c: char| !c.is_alphanumeric() && c != '_');
        for name in names.filter(|name| name.starts_with(char::is_uppercase)) {
            let is_trait = name == "InOwner";
            assert!(is_trait || table.contains(&format!("        {name} => ")), "{name} is not in the table");
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen} exports were found");
}

#[test]
fn errors_can_be_kept_compared_and_sent_along() {
    fn is_error<T: Error + Clone + PartialEq + Send + Sync + 'static>() {}
    is_error::<ConnectError>();
    is_error::<DowngradeError>();
    is_error::<ExtendError>();
    is_error::<FencedError>();
    is_error::<InvalidLease>();
    is_error::<InvalidName>();
    is_error::<InvalidNamespace>();
    is_error::<LockError>();
    is_error::<LossReason>();
    is_error::<NotObtained>();
    is_error::<PingError>();
    is_error::<RunError>();
    is_error::<UnlockError>();
}

fn spawnable<F: Future + Send + 'static>(_: F) {}

/// Never called: that it compiles is the test.
#[allow(dead_code)]
fn futures_own_what_they_need(client: &Client, lock: &ReentrantLock, guard: Guard, deadline: Instant) {
    spawnable(lock.lock());
    spawnable(lock.try_lock());
    spawnable(lock.try_lock_for(Duration::ZERO));
    spawnable(lock.try_lock_until(deadline));
    spawnable(guard.extend(Duration::ZERO));
    spawnable(guard.lost());
    spawnable(guard.unlock());
    let shared = client.rw_lock("a");
    spawnable(shared.read());
    spawnable(shared.try_read());
    spawnable(shared.try_read_for(Duration::ZERO));
    spawnable(shared.try_read_until(deadline));
    spawnable(shared.write());
    spawnable(shared.try_write());
    spawnable(shared.try_write_for(Duration::ZERO));
    spawnable(shared.try_write_until(deadline));
    spawnable(client.rw_lock("a").cached().with_label("b").read());
    spawnable(async move {
        if let Ok(writer) = shared.write().await
            && let Ok(reader) = writer.downgrade().await
        {
            drop(reader.unlock().await);
        }
        drop(shared.run_read(async |reader: &ReadGuard| reader.version()).await);
        drop(shared.run_write_for(Duration::ZERO, async |writer: &WriteGuard| writer.token()).await);
    });
    spawnable(Owner::new().scope(lock.lock()));
    spawnable(lock.lock().in_owner(&Owner::new()));
    // From a temporary handle.
    spawnable(client.lock("a").lock());
    spawnable(client.lock("a").with_owner(&Owner::new()).with_lease(Lease::fixed(Duration::MAX)).try_lock());
    spawnable(Client::connect("a"));
    spawnable(Client::builder().connect());
    let client = client.clone();
    spawnable(async move {
        let _ = client.ping().await;
        let _ = client.inspect("a").await;
        let _ = client.force_release("a", 1).await;
        client.close().await;
    });
    // Taking a guard by value is what makes a second unlock impossible.
    let _: fn(Guard) -> _ = Guard::unlock;
}

/// What users write. Never called.
#[allow(dead_code)]
async fn uses(client: Client) -> LossReason {
    let task = tokio::spawn(client.lock("a").lock());
    let _guard: Guard = task.await.expect("it does not panic").expect("it is granted");

    let handles: Vec<ReentrantLock> = ["a", "b"].iter().map(|name| client.lock(name)).collect();
    let guards: Vec<Guard> =
        join_all(handles.iter().map(ReentrantLock::lock)).await.into_iter().flatten().collect();

    struct Job {
        guard: Guard,
        done: bool,
    }
    let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
    tokio::spawn(async move {
        for guard in guards {
            let _ = sender.send(Job { guard, done: false }).await;
        }
    });
    while let Some(Job { guard, done }) = receiver.recv().await {
        let lost = guard.lost();
        let work = async { done };
        tokio::select! {
            biased;
            reason = lost => return reason,
            _ = work => drop(guard.unlock().await),
        }
    }

    let shared = std::sync::Arc::new(client.lock("a"));
    tokio::spawn(async move {
        let out = shared.run(async |guard| guard.token()).await;
        drop(out);
        let out = shared.run_for(Duration::ZERO, async |guard: &Guard| guard.is_held()).await;
        drop(out);
        shared.run_or_else(async |guard| Some(guard.token()), async |_| None).await
    });

    let owner = Owner::new();
    let lock = client.lock("a");
    let inner = owner.scope(async move {
        let _outer = lock.lock().await?;
        lock.lock().await
    });
    let inner: Result<Guard, LockError> = tokio::spawn(inner).await.expect("it does not panic");
    inner.expect("it is granted").lost().await
}
