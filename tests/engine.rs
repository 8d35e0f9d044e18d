//! The embedded engine against the table of what real servers do: replies, errors, sandbox, expiry, messages. The
//! differential test compares it with servers at random; here each rule stands by itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use lockwright::Client;
use lockwright::internals::backend::{Event, Failure, ServerError, Value};
use lockwright::internals::clock::Clock;
use lockwright::internals::config::Config;
use lockwright::internals::embedded::{Channels, Engine, Instruments, connect};
use lockwright::internals::scripts::{Call, Script, Words};
use lockwright::internals::ticket::ClientId;

const SECOND: Duration = Duration::from_secs(1);

static INCREMENT: Script =
    Script { name: "test/increment", version: 1, text: "return redis.call('INCR', KEYS[1])", parts: &[] };

fn eval(engine: &Engine, text: &str) -> Result<Value, ServerError> {
    engine.eval(text.as_bytes(), &[b"k"], &[b"a"])
}

fn value(text: &str) -> Value {
    eval(&Engine::new(), text).unwrap_or_else(|error| panic!("{text}: {}", error.text))
}

fn error(text: &str) -> String {
    eval(&Engine::new(), text).expect_err(text).text
}

fn command(engine: &Engine, line: &str) -> Value {
    engine
        .command(&line.split(' ').collect::<Vec<_>>())
        .unwrap_or_else(|error| panic!("{line}: {}", error.text))
}

fn bulk(text: &str) -> Value {
    Value::Bulk(text.as_bytes().to_vec())
}

#[test]
fn replies_are_cut_as_on_a_server() {
    assert_eq!(value("return 3.99"), Value::Int(3));
    assert_eq!(value("return -3.99"), Value::Int(-3));
    assert_eq!(value("return true"), Value::Int(1));
    assert_eq!(value("return false"), Value::Nil);
    assert_eq!(value("return {1, nil, 3}"), Value::Array(vec![Value::Int(1)]));
    assert_eq!(value("return {1, false, 3}"), Value::Array(vec![Value::Int(1), Value::Nil, Value::Int(3)]));
    assert_eq!(value("return {ok = 'FINE'}"), Value::Status("FINE".to_owned()));
    assert_eq!(value("return redis.status_reply('FINE')"), Value::Status("FINE".to_owned()));
    assert_eq!(value("return 1e20"), Value::Int(i64::MIN));
    assert_eq!(error("return {err = 'MINE text'}"), "MINE text");
    assert_eq!(error("return redis.error_reply('text')"), "ERR text");
}

#[test]
fn integers_become_doubles_in_lua() {
    let increment =
        |old: &str| value(&format!("redis.call('SET', 'n', '{old}') return redis.call('INCR', 'n')"));
    assert_eq!(increment("9007199254740992"), Value::Int(9_007_199_254_740_992));
    assert_eq!(increment("9223372036854775805"), Value::Int(i64::MIN));
    let stored =
        |number: &str| value(&format!("redis.call('SET', 'n', {number}) return redis.call('GET', 'n')"));
    assert_eq!(stored("1700000000123456"), bulk("1700000000123456"));
    assert_eq!(stored("0.1"), bulk("0.10000000000000001"));
    assert_eq!(value("return tostring(1700000000123456)"), bulk("1.7000000001235e+15"));
    assert_eq!(value("return string.format('%.0f', 1700000000123456)"), bulk("1700000000123456"));
    let scored = "redis.call('ZADD', 'z', 1700000000123456, 'm') return redis.call('ZSCORE', 'z', 'm')";
    assert_eq!(value(scored), bulk("1700000000123456"));
}

#[test]
fn what_is_missing_is_false_and_a_status_is_a_table() {
    assert_eq!(value("return redis.call('GET', 'k') == false"), Value::Int(1));
    assert_eq!(value("return redis.call('HGET', 'k', 'f') == false"), Value::Int(1));
    assert_eq!(value("return redis.call('ZSCORE', 'k', 'm') == false"), Value::Int(1));
    assert_eq!(value("return redis.call('PTTL', 'k')"), Value::Int(-2));
    assert_eq!(value("return redis.call('SET', 'k', 'v').ok"), bulk("OK"));
}

#[test]
fn lives_are_whole_milliseconds() {
    for life in ["1500.5", "1e3", "9223372036854775808", "x"] {
        let text = error(&format!("redis.call('SET', 'k', 'v') redis.call('PEXPIRE', 'k', '{life}')"));
        assert!(text.starts_with("ERR value is not an integer or out of range"), "{text}");
    }
    for life in ["0", "-5"] {
        let script = format!(
            "redis.call('SET', 'k', 'v') local r = redis.call('PEXPIRE', 'k', {life}) \
             return {{r, redis.call('EXISTS', 'k')}}"
        );
        assert_eq!(value(&script), Value::Array(vec![Value::Int(1), Value::Int(0)]));
    }
}

#[test]
fn an_error_names_its_script_and_line_and_undoes_nothing() {
    let engine = Engine::new();
    let failed =
        eval(&engine, "redis.call('SET', 'k', 'v')\nreturn redis.call('LPUSH', 'k', 'x')").unwrap_err();
    assert_eq!(failed.code, "WRONGTYPE");
    assert!(
        failed.text.contains(" script: ") && failed.text.ends_with(", on @user_script:2."),
        "{}",
        failed.text
    );
    assert_eq!(command(&engine, "GET k"), bulk("v"));
    assert_eq!(
        value("return {pcall(redis.call, 'INCR')}"),
        Value::Array(vec![Value::Nil, bulk("ERR Wrong number of args calling Redis command from script"),])
    );
    assert_eq!(
        value("return redis.pcall('INCR').err"),
        bulk("ERR Wrong number of args calling Redis command from script")
    );
}

#[test]
fn a_command_that_the_engine_lacks_is_named() {
    assert!(error("return redis.call('SORT', 'k')").contains("'SORT'"));
    assert!(Engine::new().command(&["SORT", "k"]).unwrap_err().text.contains("'SORT'"));
}

#[test]
fn nothing_that_a_script_tries_reaches_the_next_one() {
    let engine = Engine::new();
    for attack in crate::differential::ATTACKS {
        // Whether it is an error is the differential test's question.
        let _ = eval(&engine, attack);
        let healthy = "for _, name in ipairs({'redis', 'string', 'table', 'math', 'coroutine'}) do \
             assert(type(rawget(_G, name)) == 'table') end \
             assert(#redis == 0 and #string == 0 and #_G == 0 and redis.x == nil and ('x').x == nil) \
             redis.call('SET', KEYS[1], string.format('%s', ('x'):rep(2))) return redis.call('GET', KEYS[1])";
        assert_eq!(eval(&engine, healthy).map_err(|error| error.text), Ok(bulk("xx")), "after {attack}");
        assert!(error("return x").contains("nonexistent global variable 'x'"), "after {attack}");
    }
}

#[test]
fn bytecode_and_the_collector_are_out_of_reach() {
    assert_eq!(value("return {loadstring(string.dump(function() end))}"), Value::Array(Vec::new()));
    assert_eq!(value("return {load(function() return nil end)}"), Value::Array(vec![Value::Nil]));
    assert_eq!(value("return collectgarbage('stop')"), Value::Int(0));
    assert!(error("return math.random()").contains("nil value"), "a history must replay");
}

#[test]
fn a_script_without_end_or_measure_is_stopped() {
    let engine = Engine::new();
    assert!(eval(&engine, "while true do end").unwrap_err().text.contains("too long"));
    assert!(eval(&engine, "while true do pcall(function() while true do end end) end").is_err());
    let endless = eval(&engine, "local s = 'x' while true do s = s .. s end").unwrap_err();
    assert!(endless.text.contains("not enough memory"), "{}", endless.text);
    assert!(eval(&engine, "return ('x'):rep(1e9)").is_err());
    assert!(eval(&engine, "local function f() return 1 + f() end return f()").is_err());
    assert!(eval(&engine, "local t = {} t[1] = t return t").is_err());
    assert_eq!(eval(&engine, "return 1").map_err(|error| error.text), Ok(Value::Int(1)));
}

#[test]
fn a_flushed_script_must_be_loaded_again() {
    let engine = Engine::new();
    let run = || engine.run(&INCREMENT, &["n"].into(), &Words::default());
    let missing =
        |outcome| matches!(outcome, Err(Failure::Server(ServerError { code, .. })) if code == "NOSCRIPT");
    assert!(missing(run()));
    engine.load(&INCREMENT).unwrap();
    assert_eq!(run(), Ok(Value::Int(1)));
    engine.flush_scripts();
    assert!(missing(run()));
    engine.load(&INCREMENT).unwrap();
    assert_eq!(run(), Ok(Value::Int(2)));
}

#[test]
fn a_snapshot_brings_lost_writes() {
    let engine = Engine::new();
    command(&engine, "RPUSH l a");
    let before = engine.snapshot();
    command(&engine, "RPUSH l b");
    command(&engine, "SET k v");
    engine.restore(&before);
    assert_eq!(engine.keys(), [b"l".to_vec()]);
    assert_eq!(command(&engine, "LLEN l"), Value::Int(1));
    command(&engine, "RPUSH l c");
    engine.restore(&before);
    assert_eq!(
        command(&engine, "LRANGE l 0 -1"),
        Value::Array(vec![bulk("a")]),
        "a snapshot serves many times"
    );
}

#[test]
fn the_clock_may_be_the_callers() {
    let micros = Arc::new(AtomicU64::new(1_700_000_000_123_456));
    let shown = micros.clone();
    let engine = Engine::with_time(Arc::new(move || shown.load(Ordering::Relaxed)));
    assert_eq!(command(&engine, "TIME"), Value::Array(vec![bulk("1700000000"), bulk("123456")]));
    command(&engine, "SET k v PX 1000");
    micros.fetch_add(1_000_000, Ordering::Relaxed);
    assert_eq!(command(&engine, "PTTL k"), Value::Int(0), "the last millisecond is the key's");
    micros.fetch_add(1_000, Ordering::Relaxed);
    assert_eq!(command(&engine, "EXISTS k"), Value::Int(0));
    micros.fetch_sub(2_000_000, Ordering::Relaxed);
    command(&engine, "SET k v PX 1000");
    assert_eq!(command(&engine, "PTTL k"), Value::Int(1000), "it may go back");
}

#[tokio::test(start_paused = true)]
async fn paused_time_expires_keys() {
    let engine = Engine::new();
    command(&engine, "SET k v PX 30000");
    tokio::time::advance(Duration::from_secs(29)).await;
    assert_eq!(command(&engine, "PTTL k"), Value::Int(1000));
    tokio::time::advance(2 * SECOND).await;
    assert_eq!(command(&engine, "GET k"), Value::Nil);
    assert!(engine.keys().is_empty());
}

/// Fails where an asking that is late by an old sample of the server's time waits before it is made again.
#[tokio::test(start_paused = true)]
async fn a_client_that_comes_back_to_its_locks_after_an_hour_waits_for_nothing() {
    let (client, clock) = (Client::embedded(), Clock::tokio());
    for _ in 0..2 {
        let began = clock.now();
        let guard = client.lock("a").lock().await.expect("it is free");
        guard.unlock().await.expect("it is held");
        assert_eq!(clock.now().since(began), Duration::ZERO);
        tokio::time::advance(3_600 * SECOND).await;
    }
}

#[test]
fn messages_are_counted_by_channel_and_by_kind_of_channel() {
    let engine = Engine::new();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let sink = || {
        let heard = heard.clone();
        Box::new(move |text| heard.lock().unwrap().push(text))
    };
    let one = engine.subscribe(Channels::Plain, b"c", sink());
    let deaf = engine.subscribe(Channels::Plain, b"c", Box::new(drop));
    let sharded = engine.subscribe(Channels::Sharded, b"c", sink());
    assert_eq!(command(&engine, "PUBLISH c x"), Value::Int(2), "who drops messages counts too");
    assert_eq!(command(&engine, "SPUBLISH c y"), Value::Int(1));
    assert_eq!(command(&engine, "PUBLISH d x"), Value::Int(0));
    drop((one, deaf, sharded));
    assert_eq!(command(&engine, "PUBLISH c z"), Value::Int(0));
    assert!(engine.channels().is_empty());
    assert_eq!(*heard.lock().unwrap(), [b"x".to_vec(), b"y".to_vec()]);
}

#[test]
fn a_sink_may_end_subscriptions() {
    let engine = Engine::new();
    let held = Arc::new(Mutex::new(None));
    let inner = held.clone();
    let first =
        engine.subscribe(Channels::Plain, b"c", Box::new(move |_| drop(inner.lock().unwrap().take())));
    *held.lock().unwrap() = Some(engine.subscribe(Channels::Plain, b"c", Box::new(drop)));
    assert_eq!(command(&engine, "PUBLISH c x"), Value::Int(2));
    assert_eq!(command(&engine, "PUBLISH c x"), Value::Int(1));
    drop(first);
}

#[test]
fn threads_share_an_engine() {
    let engine = Engine::default();
    engine.load(&INCREMENT).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                (0..500).for_each(|_| drop(engine.run(&INCREMENT, &["n"].into(), &Words::default())))
            });
        }
    });
    assert_eq!(command(&engine, "GET n"), bulk("2000"));
}

#[tokio::test]
async fn a_connection_is_up_at_once_and_calls_load_their_script() {
    let engine = Engine::new();
    let client = ClientId::random();
    let (backend, mut events) = connect(&engine, &Config::default(), client, Clock::tokio());
    let Some(Event::Up(up)) = events.next().await else { panic!("not up") };
    assert_eq!((up.run_id.clone(), up.counted), (engine.run_id(), true));
    assert!(up.server_millis.abs_diff(engine.micros() / 1000) < 1000);
    assert_eq!(command(&engine, "GET lw:layout"), bulk("1"));
    let call = || Call { script: &INCREMENT, keys: ["n"].into(), args: Words::default() };
    assert_eq!(backend.call(call(), SECOND).await.outcome, Ok(Value::Int(1)));
    engine.flush_scripts();
    assert_eq!(backend.call(call(), SECOND).await.outcome, Ok(Value::Int(2)));
    assert_eq!(command(&engine, &format!("PUBLISH lw:wake:{client} hello")), Value::Int(1));
    assert!(
        matches!(events.next().await, Some(Event::Message { text, epoch }) if text == b"hello" && epoch == up.epoch)
    );
    assert_eq!(backend.ping(SECOND).await, Ok(Duration::ZERO));
    backend.close().await;
    assert_eq!(backend.call(call(), SECOND).await.outcome, Err(Failure::NotSent));
    assert_eq!(backend.ping(SECOND).await, Err(Failure::NotSent));
    assert!(engine.channels().is_empty());
}

/// Fails where a call is run when it is polled again: others would overtake it.
#[tokio::test]
async fn a_call_is_run_at_its_first_poll_and_answered_later() {
    let engine = Engine::new();
    let (backend, _events) = connect(&engine, &Config::default(), ClientId::random(), Clock::tokio());
    let call = Call { script: &INCREMENT, keys: ["n"].into(), args: Words::default() };
    let mut call = backend.call(call, SECOND);
    assert!((&mut call).now_or_never().is_none());
    assert_eq!(command(&engine, "GET n"), bulk("1"));
    assert_eq!(call.await.outcome, Ok(Value::Int(1)));
    assert_eq!(command(&engine, "GET n"), bulk("1"));
}

#[tokio::test]
async fn another_layout_is_refused() {
    let engine = Engine::new();
    command(&engine, "SET lw:layout 2");
    let (backend, mut events) = connect(&engine, &Config::default(), ClientId::random(), Clock::tokio());
    assert!(matches!(events.next().await, Some(Event::Refused(..))));
    let call = Call { script: &INCREMENT, keys: ["n"].into(), args: Words::default() };
    assert_eq!(backend.call(call, SECOND).await.outcome, Err(Failure::NotSent));
    assert_eq!(command(&engine, "EXISTS n"), Value::Int(0));
}

#[test]
fn an_engine_can_be_sent_and_shared() {
    fn is<T: Send + Sync + Clone + std::fmt::Debug + Default + 'static>() {}
    is::<Engine>();
}
