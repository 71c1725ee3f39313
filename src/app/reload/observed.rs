//! The result of reading the configuration file: a text to take over, or an error to report.
//!
//! Two reads in a row must show the same, unless the read was asked for: an editor writes a file in
//! pieces, and a file that is being replaced is missing for a moment. An error that lasts is
//! reported once, and again after it has changed.
//!
//! Invariant: after a reported error of reading, any text counts as a change, also the one that is
//! in use: taking it over again is what shows that the file is back.

/// The reads of the file until now.
#[derive(Debug)]
pub(super) struct ObservedFile {
    /// The text that was taken over or refused last; `None` while the file is reported unreadable.
    settled: Option<String>,
    /// The result of the last read, if that is news: a text, or the message of an error.
    news: Option<Result<String, String>>,
    /// The message of the error of reading that was reported last.
    reported: Option<String>,
}

/// The step that follows from a read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step<E> {
    /// Take over this text.
    Take(String),
    /// Report that the file cannot be read.
    Refuse(E),
    /// Nothing yet.
    Wait,
}

impl ObservedFile {
    /// Begins with the text that is in use.
    pub(super) fn new(text: String) -> Self {
        Self { settled: Some(text), news: None, reported: None }
    }

    /// Returns the step that follows from a read that was asked for.
    pub(super) fn asked<E: ToString>(&mut self, read: Result<String, E>) -> Step<E> {
        self.news = None;
        match read {
            Ok(text) => {
                self.settled = Some(text.clone());
                self.reported = None;
                Step::Take(text)
            }
            Err(error) => {
                self.settled = None;
                self.reported = Some(error.to_string());
                Step::Refuse(error)
            }
        }
    }

    /// Returns what follows from a read that nobody asked for.
    pub(super) fn polled<E: ToString>(&mut self, read: Result<String, E>) -> Step<E> {
        let content = match &read {
            Ok(text) => Ok(text.clone()),
            Err(error) => Err(error.to_string()),
        };
        let last = match &content {
            Ok(_) => &self.settled,
            Err(_) => &self.reported,
        };
        let (Ok(text) | Err(text)) = &content;
        if last.as_ref() == Some(text) {
            self.news = None;
            return Step::Wait;
        }
        if self.news.as_ref() == Some(&content) {
            return self.asked(read);
        }
        self.news = Some(content);
        Step::Wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Read = Result<&'static str, &'static str>;

    fn polled(file: &mut ObservedFile, read: Read) -> Step<&'static str> {
        file.polled(read.map(str::to_owned))
    }

    fn take(text: &str) -> Step<&'static str> {
        Step::Take(text.to_owned())
    }

    #[test]
    fn a_change_counts_once_it_was_read_twice() {
        let mut file = ObservedFile::new("old".to_owned());
        let rows = [
            (Ok("old"), Step::Wait),
            (Ok("half"), Step::Wait),
            (Ok("new"), Step::Wait),
            (Ok("new"), take("new")),
            (Ok("new"), Step::Wait),
            // Undone before it was read twice.
            (Ok("other"), Step::Wait),
            (Ok("new"), Step::Wait),
            (Ok("other"), Step::Wait),
            (Ok("other"), take("other")),
        ];
        for (read, step) in rows {
            assert_eq!(polled(&mut file, read), step, "{read:?}");
        }
    }

    #[test]
    fn a_file_that_stays_unreadable_is_reported_once_for_each_error() {
        let mut file = ObservedFile::new("old".to_owned());
        let rows = [
            // It is replaced just now.
            (Err("missing"), Step::Wait),
            (Ok("old"), Step::Wait),
            (Err("missing"), Step::Wait),
            (Err("missing"), Step::Refuse("missing")),
            (Err("missing"), Step::Wait),
            (Err("missing"), Step::Wait),
            (Err("denied"), Step::Wait),
            (Err("denied"), Step::Refuse("denied")),
            (Err("denied"), Step::Wait),
            // The same file comes back.
            (Ok("old"), Step::Wait),
            (Ok("old"), take("old")),
            (Ok("old"), Step::Wait),
            // A new failure is reported again.
            (Err("denied"), Step::Wait),
            (Err("denied"), Step::Refuse("denied")),
        ];
        for (read, step) in rows {
            assert_eq!(polled(&mut file, read), step, "{read:?}");
        }
    }

    #[test]
    fn what_was_asked_for_follows_at_once() {
        let mut file = ObservedFile::new("old".to_owned());
        let asked = |file: &mut ObservedFile, read: Read| file.asked(read.map(str::to_owned));
        assert_eq!(asked(&mut file, Ok("old")), take("old"), "also without a change");
        assert_eq!(asked(&mut file, Ok("new")), take("new"));
        assert_eq!(asked(&mut file, Err("missing")), Step::Refuse("missing"));
        assert_eq!(asked(&mut file, Err("missing")), Step::Refuse("missing"));
        // It was reported. The file that comes back is taken over, though it is the same.
        assert_eq!(polled(&mut file, Err("missing")), Step::Wait);
        assert_eq!(polled(&mut file, Ok("new")), Step::Wait);
        assert_eq!(polled(&mut file, Ok("new")), take("new"));
    }
}
