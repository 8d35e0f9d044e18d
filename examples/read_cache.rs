//! A cache over a slow store that is read far more often than written, in several processes (`-- --redis URL`) or by
//! clients on one engine, beside one that asks the server each time whether somebody has written. What was cached under
//! the stamp of a read is fresh while the stamp is the same: each reader checks that it sees nothing older than a write
//! that was over before it began to read.
#![allow(clippy::disallowed_methods, reason = "an example waits as its users do")]

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockwright::{RwLock, Stamp};
use support::{Failure, Place, Plan, Reads, Report, Slow, options, run_workers, shared_nanos};
use tokio::task::{JoinSet, yield_now};

const KINDS: [&str; 2] = ["asks each time", "cached reads"];
const READERS: usize = 16;

/// What the readers of a worker share: a number with the stamp under which it is fresh, and what they have counted.
type Cache = Arc<(Mutex<Option<(Stamp, u64)>>, Mutex<Reads>)>;
type Done = Result<(), Failure>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::process::ExitCode {
    let arguments = support::arguments();
    support::exit(match Plan::of_worker(&arguments) {
        Some((place, plan)) => work(place, plan, Report::Process).await,
        None => compare(&arguments).await,
    })
}

async fn read(lock: RwLock, mut store: Slow, cache: Cache, end: u64) -> Done {
    while shared_nanos() < end {
        let (oldest, asked) = (store.over()?, lock.try_read_cached().is_none());
        let reader = lock.read().await?;
        let stamp = reader.stamp().expect("a read without an owner has one");
        let known = cache.0.lock().unwrap().filter(|(fresh, _)| *fresh == stamp);
        let number = if let Some((_, number)) = known { number } else { store.read().await? };
        if number < oldest {
            return Err(format!("read {number}, though the write of {oldest} was over").into());
        }
        *cache.0.lock().unwrap() = Some((stamp, number));
        cache.1.lock().unwrap().add(known.is_some(), asked);
        yield_now().await;
    }
    Ok(())
}

async fn write(lock: RwLock, mut store: Slow, end: u64) -> Done {
    while shared_nanos() < end {
        let (writer, next) = (lock.write().await?, store.over()? + 1);
        store.write(next, writer.token())?;
        writer.unlock().await?;
        store.is_over(next)?;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// One worker: many readers, and in the first one the writer. It reports what they have counted.
async fn work(place: Place, plan: Plan, report: Report) -> Done {
    let client = place.client().await?;
    let lock = client.rw_lock(&plan.folder);
    // With a limit of its own each read has a hold of its own.
    let reads = if plan.cached { lock.cached() } else { lock.clone().with_max_hold(Duration::from_secs(60)) };
    report.ready()?;
    let (end, cache, mut tasks) = (shared_nanos() + plan.nanos(), Cache::default(), JoinSet::new());
    for _ in 0..READERS {
        tasks.spawn(read(reads.clone(), Slow::open(&plan)?, cache.clone(), end));
    }
    if plan.writes {
        tasks.spawn(write(lock, Slow::open(&plan)?, end));
    }
    while let Some(outcome) = tasks.join_next().await {
        outcome??;
    }
    client.close().await;
    report.line(&cache.1.lock().unwrap().line());
    Ok(())
}

async fn compare(arguments: &[String]) -> Done {
    let options = options(arguments, &["--redis URL", "--workers N", "--millis N", "--json"])?;
    let number = |name, default| options.get(name).map_or(Ok(default), |text| text.parse::<u64>());
    let (workers, millis) = (number("--workers", 4)?, number("--millis", 2_000)?);
    let (place, mut all) = (Place::of(&options), KINDS.map(|kind| (kind, Reads::default())));
    for (kind, reads) in &mut all {
        let (plan, _folder) = Slow::create(*kind == KINDS[1], millis)?;
        let task = |worker, report| work(place.clone(), plan.for_worker(worker), report);
        run_workers(&place, workers as usize, &plan.words(&place), task, |_, line| reads.take(line)).await?;
    }
    Reads::print(&all, Duration::from_millis(millis), options.contains_key("--json"));
    Ok(())
}
