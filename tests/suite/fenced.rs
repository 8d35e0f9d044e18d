//! Values that a stale holder cannot overwrite.

use lockwright::{FencedError, FencedKey, InvalidName};

use super::*;

async fn found(key: &FencedKey) -> Option<(u64, String)> {
    let value = soon("the value", key.get()).await.expect("the server answers");
    value.map(|value| (value.token, value.value))
}

pub async fn a_fenced_value_is_written_and_read<D: Deployment>(on: &D) {
    let (one, other) = (on.client().await, on.client().await);
    let key = one.fenced_key("a");
    assert_eq!(found(&key).await, None);
    let guard = take(&one, "a").await;
    for value in ["12", "", "a b\r\n\0\u{1f512}"] {
        soon("the write", key.set(guard.token(), value)).await.expect("it is the largest token");
        assert_eq!(found(&other.fenced_key("a")).await, Some((guard.token(), value.to_owned())));
    }
    assert_eq!(found(&one.fenced_key("b")).await, None);
    drop(guard);
}

pub async fn a_stale_holder_is_refused<D: Deployment>(on: &D) {
    let (one, other) = (on.client().await, on.client().await);
    let late = take(&one, "a").await;
    assert_eq!(other.force_release("a", late.token()).await, Ok(true));
    // Until the next holder has written nothing tells that this one is late.
    one.fenced_key("a").set(late.token(), "late").await.expect("it is the largest token");
    let guard = wait_for(&other, "a").await;
    other.fenced_key("a").set(guard.token(), "new").await.expect("it is the largest token");
    let refused = one.fenced_key("a").set(late.token(), "late").await;
    assert_eq!(refused, Err(FencedError::Stale { largest: guard.token() }));
    assert_eq!(found(&one.fenced_key("a")).await, Some((guard.token(), "new".to_owned())));
}

pub async fn one_token_may_write_again_from_any_client<D: Deployment>(on: &D) {
    let (one, other) = (on.client().await, on.client().await);
    let (here, there) = (one.fenced_key("a"), other.fenced_key("a"));
    for (key, value) in [(&here, "1"), (&there, "2"), (&here, "3"), (&here, "4"), (&there, "5")] {
        key.set(7, value).await.expect("it is the largest token");
        assert_eq!(found(&there).await, Some((7, value.to_owned())));
    }
}

pub async fn what_no_fenced_key_can_have_is_told<D: Deployment>(on: &D) {
    let client = on.client().await;
    let named = client.fenced_key("");
    assert_eq!(named.get().await, Err(FencedError::InvalidName(InvalidName::Empty)));
    assert_eq!(named.set(1, "x").await, Err(FencedError::InvalidName(InvalidName::Empty)));
    let (key, token) = (client.fenced_key("a"), 1 << 53);
    assert_eq!(key.set(token, "x").await, Err(FencedError::InvalidToken { token }));
    key.set(token - 1, "x").await.expect("it is the largest token");
    assert_eq!(key.set(token - 2, "x").await, Err(FencedError::Stale { largest: token - 1 }));
    client.close().await;
    assert_eq!(key.get().await, Err(FencedError::Closed));
    assert_eq!(key.set(token - 1, "x").await, Err(FencedError::Closed));
}
