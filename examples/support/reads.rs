//! A slow store and the readers of a cache over it: what they count, and the figures in it.

use std::path::Path;
use std::time::Duration;

use super::{Failure, Place, Store};

/// What a worker is to do.
#[derive(Clone)]
pub struct Plan {
    pub cached: bool,
    pub writes: bool,
    pub folder: String,
    millis: u64,
}

impl Plan {
    /// The plan of a process that was started as a worker, and its place.
    pub fn of_worker(arguments: &[String]) -> Option<(Place, Self)> {
        let [first, url, cached, folder, millis, number] = arguments else { return None };
        let plan = Self {
            cached: cached == "true",
            writes: number == "0",
            folder: folder.clone(),
            millis: millis.parse().ok()?,
        };
        (first == "--worker").then(|| (Place::Server(url.clone()), plan))
    }

    /// The arguments of such a process, but for its number.
    pub fn words(&self, place: &Place) -> [String; 5] {
        let url = place.url().unwrap_or_default();
        ["--worker", url, &self.cached.to_string(), &self.folder, &self.millis.to_string()].map(str::to_owned)
    }

    /// The first worker writes.
    pub fn for_worker(&self, number: usize) -> Self {
        Self { writes: number == 0, ..self.clone() }
    }

    pub fn nanos(&self) -> u64 {
        self.millis * 1_000_000
    }
}

/// How long the slow store takes for an answer.
const SLOW: Duration = Duration::from_millis(5);

/// A number in a slow store, and beside it the last one of which all may know that its write is over.
pub struct Slow {
    store: Store,
    over: Store,
}

impl Slow {
    /// Makes one, and a plan for its users. It goes with the folder that is returned.
    pub fn create(cached: bool, millis: u64) -> Result<(Plan, tempfile::TempDir), Failure> {
        let folder = tempfile::tempdir()?;
        for name in ["store", "over"] {
            Store::create(&folder.path().join(name), 0)?;
        }
        let path = folder.path().display().to_string();
        Ok((Plan { cached, writes: false, folder: path, millis }, folder))
    }

    pub fn open(plan: &Plan) -> Result<Self, Failure> {
        let folder = Path::new(&plan.folder);
        Ok(Self { store: Store::open(&folder.join("store"))?, over: Store::open(&folder.join("over"))? })
    }

    pub async fn read(&mut self) -> Result<u64, Failure> {
        tokio::time::sleep(SLOW).await;
        self.store.read()
    }

    pub fn write(&mut self, number: u64, token: u64) -> Result<bool, Failure> {
        self.store.write_fenced(number, token)
    }

    /// The last number whose write is known to be over.
    pub fn over(&mut self) -> Result<u64, Failure> {
        self.over.read()
    }

    pub fn is_over(&mut self, number: u64) -> Result<(), Failure> {
        self.over.write(number)
    }
}

/// What the readers of one cache have counted.
#[derive(Clone, Copy, Default)]
pub struct Reads {
    reads: u64,
    hits: u64,
    asked: u64,
}

impl Reads {
    /// One more: whether the cache could answer it, and whether the lock had to be asked for.
    pub fn add(&mut self, hit: bool, asked: bool) {
        self.reads += 1;
        self.hits += u64::from(hit);
        self.asked += u64::from(asked);
    }

    /// As a worker reports it.
    pub fn line(&self) -> String {
        format!("{} {} {}", self.reads, self.hits, self.asked)
    }

    /// Takes a worker's line.
    pub fn take(&mut self, line: &str) -> Result<(), Failure> {
        let numbers = line.split(' ').map(str::parse).collect::<Result<Vec<u64>, _>>()?;
        let [reads, hits, asked] = numbers[..] else { return Err(format!("{line:?} is no report").into()) };
        (self.reads, self.hits, self.asked) = (self.reads + reads, self.hits + hits, self.asked + asked);
        Ok(())
    }

    /// Reads a second, the share of hits, and commands for each read: one that begins it and one that ends it where the
    /// lock was asked for. At most so many, since readers that wait together are served by one.
    fn figures(&self, span: Duration) -> [f64; 3] {
        let reads = self.reads.max(1) as f64;
        [self.reads as f64 / span.as_secs_f64(), self.hits as f64 / reads, 2.0 * self.asked as f64 / reads]
    }

    /// Prints what came of each kind of cache.
    pub fn print(all: &[(&str, Self)], span: Duration, as_json: bool) {
        let figures = all.iter().map(|(kind, reads)| (kind, reads.figures(span)));
        if as_json {
            let objects = figures.map(|(kind, [rate, hits, commands])| {
                let kind = kind.replace(' ', "_");
                format!(
                    r#""{kind}":{{"reads_per_s":{rate:.0},"hit_rate":{hits:.4},"commands_per_read":{commands:.4}}}"#
                )
            });
            println!("{{{}}}", objects.collect::<Vec<_>>().join(","));
            return;
        }
        println!("\n{:16}{:>10}{:>10}{:>15}", "", "reads/s", "hits", "commands/read");
        for (kind, [rate, hits, commands]) in figures {
            println!("{kind:16}{rate:>10.0}{:>9.1}%{commands:>15.4}", 100.0 * hits);
        }
        println!("\nno reader saw anything older than a write that was over before it began");
    }
}
