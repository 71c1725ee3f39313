//! The settings of shadow mode (`docs/decisions/shadow-mode.md`).

use std::fmt;
use std::str::FromStr;

use crate::config::scalars::{Text, Word, words};
use crate::config::section::section;

section! {
    /// Shadow mode.
    pub struct ShadowConfig {
        /// off: caches answer. compare: the API server answers every read, and caches are compared
        /// with it.
        restart mode: ShadowMode = ShadowMode::Off, Word;

        /// The part of one processor that comparisons may take. Beyond it reads are counted as busy
        /// and not compared.
        restart cpu_share: Fraction = Fraction::percent(10), Text;
    }
}

/// Whether Weir runs in shadow mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShadowMode {
    /// Caches answer.
    Off,
    /// The upstream answers every read, and caches are compared with it.
    Compare,
}

/// A part, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fraction(u32);

impl Fraction {
    /// Returns a part in hundredths.
    pub const fn percent(percent: u32) -> Self {
        Self(percent * (WHOLE / 100))
    }

    /// Returns the part of 1.
    pub fn fraction(self) -> f64 {
        f64::from(self.0) / f64::from(WHOLE)
    }
}

impl FromStr for Fraction {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("expected a percentage such as 1% or 0.1%, not {text:?}");
        let number = text.strip_suffix('%').ok_or_else(expected)?;
        let is_plain = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let percent: f64 = number.parse().map_err(|_| expected())?;
        let millionths = percent * f64::from(WHOLE) / 100.0;
        if !is_plain || !(1.0..=f64::from(WHOLE)).contains(&millionths) {
            return Err(format!("must be more than 0% and at most 100%, not {text:?}"));
        }
        Ok(Self(millionths.round() as u32))
    }
}

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.fraction() * 100.0)
    }
}

words!(ShadowMode { Off: "off", Compare: "compare" });

const WHOLE: u32 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_percentages() {
        for (text, fraction) in [("1%", 0.01), ("100%", 1.0), ("0.25%", 0.0025), ("12.5%", 0.125)] {
            let share: Fraction = text.parse().unwrap();
            assert!((share.fraction() - fraction).abs() < 1e-9);
            assert_eq!(share.to_string(), text);
        }
        for text in ["", "%", "1", "0%", "101%", "-1%", "1e1%", "NaN%", "a%"] {
            assert!(text.parse::<Fraction>().is_err(), "{text}");
        }
        assert_eq!(Fraction::percent(10).to_string(), "10%");
    }
}
