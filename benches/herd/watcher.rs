//! A bare watch client, which does what client-go's reflector does: it watches from the
//! resourceVersion that it has, resumes there when the watch ends, obeys `Retry-After`, and lists
//! again only after a 410.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::client::{Connection, Endpoint};
use crate::crowd::Crowd;

/// One client.
pub(crate) struct Watcher {
    pub(crate) number: usize,
    pub(crate) endpoint: Endpoint,
    pub(crate) token: String,
    /// The path of the collection.
    pub(crate) path: String,
    /// A selector, as a part of a query.
    pub(crate) selector: String,
    /// The resourceVersion that it has.
    pub(crate) after: u64,
    pub(crate) crowd: Arc<Crowd>,
}

/// The end of a watch, or of an attempt to open one.
enum End {
    /// Resume at once.
    Ended,
    /// The resourceVersion is too old.
    Expired,
    /// Not accepted. The server says when to try again.
    Refused(Duration),
}

impl Watcher {
    /// Watches until the crowd is stopped.
    pub(crate) async fn run(mut self) {
        while !self.crowd.is_stopped() {
            match self.watch().await {
                Ok(End::Ended) => {}
                Ok(End::Refused(wait)) => sleep(wait).await,
                Ok(End::Expired) => {
                    self.crowd.note(|seen| seen.relists += 1);
                    if self.list().await.is_err() {
                        sleep(RECONNECT).await;
                    }
                }
                Err(_) => {
                    self.crowd.note(|seen| seen.broken += 1);
                    sleep(RECONNECT.mul_f64(0.5 + fastrand::f64())).await;
                }
            }
        }
    }

    async fn watch(&mut self) -> io::Result<End> {
        let mut connection = Connection::open(&self.endpoint, self.number).await?;
        let (path, selector, after) = (&self.path, &self.selector, self.after);
        let path = format!(
            "{path}?watch=1&allowWatchBookmarks=true&timeoutSeconds=3000&resourceVersion={after}{selector}"
        );
        let head = connection.get(&path, &self.token).await?;
        self.crowd.note(|seen| {
            *seen.codes.entry(head.code).or_default() += 1;
            seen.forwarded += usize::from(head.code == 200 && !head.hit);
            seen.retry_after_max = seen.retry_after_max.max(head.retry_after.unwrap_or(0));
        });
        match (head.code, head.retry_after) {
            (200, _) => {}
            (410, _) => return Ok(End::Expired),
            (_, wait) => return Ok(End::Refused(Duration::from_secs(wait.unwrap_or(1)))),
        }
        self.crowd.opened();
        let end = self.read(&mut connection).await;
        self.crowd.closed();
        Ok(end.unwrap_or(End::Ended))
    }

    /// Reads frames until the watch ends.
    async fn read(&mut self, connection: &mut Connection) -> io::Result<End> {
        let mut text = Vec::new();
        while let Some(chunk) = connection.chunk().await? {
            text.extend(chunk);
            while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                let rest = text.split_off(end + 1);
                let frame = std::mem::replace(&mut text, rest);
                let frame = String::from_utf8(frame).map_err(io::Error::other)?;
                if frame.starts_with(r#"{"type":"ERROR""#) {
                    let expired = frame.contains(r#""code":410"#);
                    return Ok(if expired { End::Expired } else { End::Ended });
                }
                if let Some(tick) = number_after(&frame, TICK) {
                    self.crowd.ticked(self.number, tick);
                }
                self.after = number_after(&frame, REVISION).unwrap_or(self.after);
            }
        }
        Ok(End::Ended)
    }

    /// Lists again after a 410.
    async fn list(&mut self) -> io::Result<()> {
        let mut connection = Connection::open(&self.endpoint, self.number).await?;
        let path = format!("{}?resourceVersion=0{}", self.path, self.selector);
        let head = connection.get(&path, &self.token).await?;
        let body = connection.body(&head).await?;
        let text = String::from_utf8(body).map_err(io::Error::other)?;
        if head.code == 200 {
            self.after = number_after(&text, REVISION).unwrap_or(self.after);
            if let Some(tick) = number_after(&text, TICK) {
                self.crowd.listed(self.number, tick);
            }
        }
        Ok(())
    }
}

/// Returns the number in quotes after the first `key`.
fn number_after(text: &str, key: &str) -> Option<u64> {
    let (_, rest) = text.split_once(key)?;
    rest.split('"').next()?.parse().ok()
}

const TICK: &str = r#""tick":""#;
const REVISION: &str = r#""resourceVersion":""#;
/// How long a client waits after a refused connection: less than client-go does, so that the crowd
/// arrives together.
const RECONNECT: Duration = Duration::from_millis(100);
