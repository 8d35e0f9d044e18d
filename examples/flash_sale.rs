//! A flash sale: several processes sell one stock from a store that is read, waited on and written back. Without a
//! lock they sell more than there is; with one, never.
//!
//! ```text
//! cargo run --example flash_sale [-- --redis URL] [--workers N] [--stock N] [--json]
//! ```
//!
//! Without `--redis` a `redis-server` is started for the time of the sale. The workers are processes of their own;
//! the store is a file.

#![allow(clippy::disallowed_methods, reason = "an example waits as its users do")]

mod support;

use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::time::Duration;

use lockwright::Client;
use support::{Failure, Progress, Server, await_order, options, percentile, run_workers, shared_nanos};

/// How long a customer takes to pay: between the look at the stock and the booking.
const PAYING: Duration = Duration::from_millis(1);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match &arguments[..] {
        [first, store, url, name] if first == "--worker" => work(store, url, name),
        arguments => compare(arguments),
    };
    if let Err(error) = outcome {
        eprintln!("flash_sale: {error}");
        std::process::exit(1);
    }
}

/// One worker process: sells until nothing is left, and reports of each sale when it came in and when it was done.
#[tokio::main(flavor = "current_thread")]
async fn work(store: &str, url: &str, name: &str) -> Result<(), Failure> {
    let client = if url.is_empty() { None } else { Some(Client::connect(url).await?) };
    let lock = client.as_ref().map(|client| client.lock(name));
    let mut store = File::options().read(true).write(true).open(store)?;
    await_order()?;
    loop {
        let guard = match &lock {
            Some(lock) => Some(lock.lock().await?),
            None => None,
        };
        let entered = shared_nanos();
        let left = read(&mut store)?;
        if left > 0 {
            tokio::time::sleep(PAYING).await;
            write(&mut store, left - 1)?;
        }
        let done = shared_nanos();
        if let Some(guard) = guard {
            guard.unlock().await?;
        }
        if left == 0 {
            return Ok(());
        }
        println!("{entered} {done}");
    }
}

/// The store does what it is told and knows nothing of its users: that is what the lock is for.
fn read(store: &mut File) -> Result<u64, Failure> {
    let mut text = String::new();
    store.rewind()?;
    store.read_to_string(&mut text)?;
    Ok(text.parse()?)
}

fn write(store: &mut File, stock: u64) -> Result<(), Failure> {
    store.rewind()?;
    // In one piece, and always as long: a reader never sees half a number.
    Ok(store.write_all(format!("{stock:020}").as_bytes())?)
}

struct Sale {
    sold: u64,
    oversold: u64,
    per_second: f64,
    /// Microseconds from the end of one sale to the beginning of the next in another process, sorted.
    handovers: Vec<u64>,
}

fn compare(arguments: &[String]) -> Result<(), Failure> {
    let options = options(arguments, &["--redis URL", "--workers N", "--stock N", "--json"])?;
    let number = |name, default| options.get(name).map_or(Ok(default), |text| text.parse());
    let (workers, stock) = (number("--workers", 4)?, number("--stock", 100)?);
    let folder = tempfile::tempdir()?;
    let (mut url, mut _server) = (options.get("--redis").cloned().unwrap_or_default(), None);
    if url.is_empty() {
        url = _server.insert(Server::start(folder.path())?).url.clone();
    }
    let without = sale("without a lock", folder.path(), "", workers, stock)?;
    let with = sale("with a lock", folder.path(), &url, workers, stock)?;
    let (p50, p99) = (percentile(&with.handovers, 50), percentile(&with.handovers, 99));
    if options.contains_key("--json") {
        println!(
            r#"{{"without_lock":{{"sold":{},"oversold":{}}},"with_lock":{{"sold":{},"oversold":{},"sections_per_s":{:.0},"handover_p50_us":{p50},"handover_p99_us":{p99}}}}}"#,
            without.sold, without.oversold, with.sold, with.oversold, with.per_second
        );
        return Ok(());
    }
    println!("\n{workers} processes sell a stock of {stock}; {PAYING:?} to pay\n");
    println!("{:16}{:>8}{:>10}{:>10}", "", "sold", "oversold", "sales/s");
    for (name, sale) in [("without a lock", &without), ("with a lock", &with)] {
        println!("{name:16}{:>8}{:>10}{:>10.0}", sale.sold, sale.oversold, sale.per_second);
    }
    println!("\nfrom one process to the next: half in {p50} us, 99 % in {p99} us");
    Ok(())
}

fn sale(name: &str, folder: &Path, url: &str, workers: u64, stock: u64) -> Result<Sale, Failure> {
    let store = folder.join(name);
    fs::write(&store, format!("{stock:020}"))?;
    // Another run on the same server at the same time sells another stock, and is another lock.
    let lock = format!("flash sale {}", folder.display());
    let arguments = ["--worker", &store.display().to_string(), url, &lock].map(str::to_owned);
    // When it came in, when it was done, and who it was.
    let mut sales: Vec<(u64, u64, usize)> = Vec::new();
    let mut progress = Progress::new();
    run_workers(workers, &arguments, |worker, line| {
        let (entered, done) = line.split_once(' ').ok_or("a worker reports two times")?;
        sales.push((entered.parse()?, done.parse()?, worker));
        progress.show(&format!("{name}: {} sold of {stock}", sales.len()));
        Ok(())
    })?;
    progress.end(&format!("{name}: {} sold of {stock}", sales.len()));
    sales.sort_unstable();
    let others = sales.windows(2).filter(|pair| pair[0].2 != pair[1].2);
    let mut handovers: Vec<u64> = others.map(|pair| pair[1].0.saturating_sub(pair[0].1) / 1_000).collect();
    handovers.sort_unstable();
    let (first, last) = (sales.first().ok_or("nothing was sold")?, sales.iter().map(|sale| sale.1).max());
    let seconds = (last.unwrap_or(first.1) - first.0) as f64 / 1e9;
    let sold = sales.len() as u64;
    Ok(Sale { sold, oversold: sold.saturating_sub(stock), per_second: sold as f64 / seconds, handovers })
}
