//! A flash sale: several workers sell one stock from a store that is read, waited on and written back. Without a lock
//! they sell more than there is; with one, never. With `--fencing` one worker also stops for longer than its lease.
//!
//! `cargo run --example flash_sale [-- --redis URL] [--workers N] [--stock N] [--fencing] [--json]`
//!
//! The workers are tasks with clients of their own on one engine; with `--redis` they are processes.
#![allow(clippy::disallowed_methods, reason = "an example waits as its users do")]

mod support;

use std::time::Duration;

use lockwright::{Guard, Lease};
use support::*;

const KINDS: [&str; 4] = ["without a lock", "with a lock", "a worker stops", "it stops, with fencing"];
/// How long a customer takes to pay: between the look at the stock and the booking.
const PAYING: Duration = Duration::from_millis(1);
/// For how long one worker stops, with a lease that is much shorter.
const STOP: Duration = Duration::from_secs(1);

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::process::ExitCode {
    let arguments = support::arguments();
    support::exit(match &arguments[..] {
        [first, url, kind, store, worker] if first == "--worker" => {
            sell(Place::Server(url.clone()), kind, store, worker == "0", Report::Process).await
        }
        arguments => compare(arguments).await,
    })
}

/// One worker: sells until nothing is left, and reports of each sale when it came in and when it was done.
async fn sell(place: Place, kind: &str, store: &str, first: bool, report: Report) -> Result<(), Failure> {
    let (name, mut store) = (format!("flash sale {store}"), Store::open(store.as_ref())?);
    let mut stops = first && kind.contains("stops");
    let client = place.client().await?;
    report.ready()?;
    loop {
        let lease = if stops { Lease::fixed(STOP / 10) } else { Lease::default() };
        let lock = client.lock(&name).with_lease(lease);
        let guard = if kind == "without a lock" { None } else { Some(lock.lock().await?) };
        let (entered, left) = (shared_nanos(), store.read()?);
        let stopped = std::mem::take(&mut stops);
        tokio::time::sleep(if stopped { STOP } else { PAYING }).await;
        let written = match &guard {
            _ if left == 0 => false,
            Some(guard) if kind.contains("fencing") => store.write_fenced(left - 1, guard.token())?,
            _ => store.write(left - 1).map(|()| true)?,
        };
        let done = shared_nanos();
        if let Some(unlock) = guard.map(Guard::unlock) {
            // Whoever stopped for too long hears of it here, if it has not asked before.
            unlock.await.or_else(|error| if stopped { Ok(()) } else { Err(error) })?;
        }
        if left == 0 {
            return Ok(());
        }
        report.line(&if written { format!("{entered} {done}") } else { "refused".to_owned() });
    }
}

async fn compare(arguments: &[String]) -> Result<(), Failure> {
    let options = options(arguments, &["--redis URL", "--workers N", "--stock N", "--fencing", "--json"])?;
    let number = |name, default| options.get(name).map_or(Ok(default), |text| text.parse());
    let (workers, stock) = (number("--workers", 4)?, number("--stock", 100)?);
    let (place, folder) = (Place::of(&options), tempfile::tempdir()?);
    let (mut all, kinds) = (Vec::new(), if options.contains_key("--fencing") { &KINDS } else { &KINDS[..2] });
    for kind in kinds {
        let store = Store::create(&folder.path().join(kind), stock)?;
        let (mut sales, mut progress) = (Sales::default(), Progress::new());
        let words = ["--worker", place.url().unwrap_or_default(), kind, &store].map(str::to_owned);
        let task = |worker, report| {
            let (place, store) = (place.clone(), store.clone());
            async move { sell(place, kind, &store, worker == 0, report).await }
        };
        run_workers(&place, workers as usize, &words, task, |worker, line| {
            sales.take(worker, line)?;
            progress.show(&format!("{kind}: {} sold of {stock}", sales.sold()));
            Ok(())
        })
        .await?;
        progress.end(&format!("{kind}: {} sold of {stock}", sales.sold()));
        all.push(sales);
    }
    if options.contains_key("--json") {
        println!("{}", Sales::json(&all[0], &all[1], stock));
        return Ok(());
    }
    println!("\n{workers} {} sell a stock of {stock}; {PAYING:?} to pay\n", place.workers());
    println!("{:24}{:>8}{:>10}{:>10}{:>10}", "", "sold", "oversold", "refused", "sales/s");
    for (kind, sales) in KINDS.iter().zip(&all) {
        let (sold, over, refused) = (sales.sold(), sales.oversold(stock), sales.refused);
        println!("{kind:24}{sold:>8}{over:>10}{refused:>10}{:>10.0}", sales.per_second());
    }
    let [half, most] = [50, 99].map(|percent| all[1].handover(percent));
    println!("\nwith a lock, from one worker to the next: half in {half} us, 99 % in {most} us");
    Ok(())
}
