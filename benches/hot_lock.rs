//! One lock that everybody wants: several processes with several tasks each, with and without a round trip between
//! them and the server, against what others do: wake everybody (`broadcast`), or retry (`poll`).
#![allow(clippy::disallowed_methods, missing_docs, reason = "a bench measures real time")]

#[path = "hot_lock/designs.rs"]
mod designs;
#[path = "hot_lock/figures.rs"]
mod figures;
mod support;
#[path = "hot_lock/worker.rs"]
mod worker;

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use figures::{Figures, Order, Section};
use support::server::Server;
use support::{bare, delay, floor_call, has_flag, median, monotonic, quantile};

/// Each run lasts this long; its first second is not counted.
const RUN: Duration = Duration::from_secs(6);
const ROUNDS: usize = 3;
const DESIGNS: [&str; 4] = ["reentrant", "fair", "broadcast", "poll"];

#[derive(Clone, Copy)]
struct Cell {
    processes: usize,
    tasks: usize,
    rtt_ms: u64,
    section_us: u64,
}

fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for rtt_ms in [0, 1] {
        for (processes, tasks) in [(4, 32), (8, 4)] {
            for section_us in [0, 1000] {
                cells.push(Cell { processes, tasks, rtt_ms, section_us });
            }
        }
    }
    cells
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let Some(at) = args.iter().position(|arg| arg == "--worker") {
        return worker::run(&args[at + 1..]);
    }
    if has_flag("--order") {
        return order();
    }
    let only = |cell: &Cell| !has_flag("--hottest") || (cell.processes, cell.section_us) == (4, 0);
    let rounds = if has_flag("--once") { 1 } else { ROUNDS };
    if !has_flag("--json") {
        println!("{}", figures::HEAD);
    }
    for cell in cells().into_iter().filter(only) {
        let server = Server::start();
        let url = if cell.rtt_ms == 0 {
            server.url()
        } else {
            delay::start(server.port(), Duration::from_micros(cell.rtt_ms * 500))
        };
        let mut all: BTreeMap<&str, Vec<Figures>> = BTreeMap::new();
        for _ in 0..rounds {
            for design in DESIGNS {
                let floor = floor(&url);
                let figures = run(&server, &url, design, cell).against(floor);
                all.entry(design).or_default().push(figures);
            }
        }
        for design in DESIGNS {
            let figures = Figures::median(&all[design], &all["broadcast"]);
            println!("{}", figures.line(design, cell.processes, cell.tasks, cell.rtt_ms, cell.section_us));
        }
    }
    if !has_flag("--hottest") {
        order();
    }
}

/// One task's bare pairs a second, and the median of its round trips in milliseconds, on the same way to the server.
fn floor(url: &str) -> (f64, f64) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let (wire, _events) = bare(url).await;
        let (started, mut times) = (Instant::now(), Vec::new());
        while started.elapsed() < Duration::from_millis(500) {
            let asked = Instant::now();
            wire.call(floor_call("floor"), Duration::from_secs(1)).await.outcome.expect("the server answers");
            times.push(u64::try_from(asked.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
        let pairs = times.len() as f64 / 2.0 / started.elapsed().as_secs_f64();
        wire.close().await;
        (pairs, quantile(&mut times, 0.5) as f64 / 1e6)
    })
}

/// How strictly the fair lock keeps the order, over so many hand-overs between eight processes.
fn order() {
    const HAND_OVERS: u64 = 100_000;
    let cell = Cell { processes: 8, tasks: 4, rtt_ms: 0, section_us: 0 };
    let server = Server::start();
    let mut order = Order::default();
    while order.hand_overs < HAND_OVERS {
        order.add(Order::of(sections(&server, &server.url(), "places", cell).0));
    }
    println!("{}", order.line(cell.processes, cell.tasks));
}

fn run(server: &Server, url: &str, design: &str, cell: Cell) -> Figures {
    let (sections, begin, calls) = sections(server, url, design, cell);
    let tasks = cell.processes * cell.tasks;
    Figures::of(sections, tasks, begin + 1_000_000_000, RUN - Duration::from_secs(1), calls)
}

/// The sections of a run, when it began, and the script calls after its first second.
fn sections(server: &Server, url: &str, design: &str, cell: Cell) -> (Vec<Section>, u64, u64) {
    let folder = tempfile::tempdir().expect("a folder for the records");
    let begin = monotonic() + 1_000_000_000;
    let program = std::env::current_exe().expect("this program");
    let children: Vec<_> = (0..cell.processes)
        .map(|process| {
            let record = folder.path().join(process.to_string());
            Command::new(&program)
                .args(["--worker", design, url, &cell.tasks.to_string(), &cell.section_us.to_string()])
                .args([&begin.to_string(), &RUN.as_nanos().to_string(), &record.display().to_string()])
                .stdin(Stdio::null())
                .spawn()
                .expect("this program starts")
        })
        .collect();
    // Counted from the end of the first second, as everything else.
    std::thread::sleep(Duration::from_nanos(begin + 1_000_000_000 - monotonic()));
    let before = server.script_calls();
    std::thread::sleep(RUN - Duration::from_secs(1));
    let calls = server.script_calls() - before;
    for mut child in children {
        assert!(child.wait().expect("the worker ends").success(), "a worker failed");
    }
    let mut sections = Vec::new();
    for process in 0..cell.processes {
        let bytes = std::fs::read(folder.path().join(process.to_string())).expect("the worker's record");
        sections.extend(bytes.chunks_exact(Section::BYTES).map(|bytes| Section::read(process, bytes)));
    }
    (sections, begin, calls)
}
