//! Everything that the library and the crates below it log, at every level.

use std::cell::RefCell;
use std::fmt::{Debug, Write};
use std::sync::{Mutex, OnceLock};

use tracing::field::{Field, Visit};
use tracing::span;
use tracing::subscriber::{DefaultGuard, NoSubscriber};

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

thread_local! {
    static OWN: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// How many tests collect now. Without an end all later tests of the process would be slowed down, and fill the memory.
static COLLECTING: Mutex<usize> = Mutex::new(0);

/// Has a subscriber hear this thread. While there is only one in the process, whether anybody wants a line is asked of the
/// thread that comes to that line first, and never again: a test beside this one would answer for it.
pub fn subscribe(subscriber: impl tracing::Subscriber + Send + Sync + 'static) -> DefaultGuard {
    static ANOTHER: OnceLock<tracing::Dispatch> = OnceLock::new();
    ANOTHER.get_or_init(|| tracing::Dispatch::new(NoSubscriber::new()));
    tracing::subscriber::set_default(subscriber)
}

/// Collects for as long as it lives: `log` from all threads, `tracing` from this one.
pub struct Collecting {
    _own: DefaultGuard,
}

pub fn collect() -> Collecting {
    OWN.with_borrow_mut(Vec::clear);
    let _ = log::set_logger(&Collector);
    let mut collecting = COLLECTING.lock().unwrap();
    *collecting += 1;
    log::set_max_level(log::LevelFilter::Trace);
    Collecting { _own: subscribe(Collector) }
}

impl Drop for Collecting {
    fn drop(&mut self) {
        let mut collecting = COLLECTING.lock().unwrap();
        *collecting -= 1;
        if *collecting == 0 {
            log::set_max_level(log::LevelFilter::Off);
            LINES.lock().unwrap().clear();
        }
    }
}

/// All lines so far, those of other tests that collect included.
pub fn lines() -> Vec<String> {
    LINES.lock().unwrap().clone()
}

/// What `tracing` has collected on this thread since the guard of this test was made.
pub fn own() -> Vec<String> {
    OWN.with_borrow(Clone::clone)
}

struct Collector;

impl log::Log for Collector {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        LINES.lock().unwrap().push(format!("{} {}: {}", record.level(), record.target(), record.args()));
    }

    fn flush(&self) {}
}

impl tracing::Subscriber for Collector {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &span::Attributes<'_>) -> span::Id {
        let mut line = Line(span.metadata().name().to_owned());
        span.record(&mut line);
        LINES.lock().unwrap().push(line.0);
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = Line(format!("{} {}:", event.metadata().level(), event.metadata().target()));
        event.record(&mut line);
        OWN.with_borrow_mut(|own| own.push(line.0.clone()));
        LINES.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}
