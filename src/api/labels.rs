//! Enums whose values have a text, which metrics, logs and responses show.
//!
//! [`labels!`](crate::labels!) states each value beside its text, once. [`Label`] gives code that
//! works with any such enum all values in their order, for instance to register the series of a
//! metric.

/// An enum that [`labels!`](crate::labels!) has defined.
pub trait Label: Copy + 'static {
    /// All values, in the order of their definition.
    const VALUES: &'static [Self];

    /// Returns the text.
    fn text(self) -> &'static str;

    /// Returns the place in [`Self::VALUES`].
    fn index(self) -> usize;
}

/// Defines an enum whose values have a text each: `as_str` returns it, and `ALL` has all values.
#[macro_export]
macro_rules! labels {
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $name:ident {
            $($(#[$value_attribute:meta])* $value:ident = $text:literal,)+
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        $visibility enum $name {
            $($(#[$value_attribute])* $value,)+
        }

        impl $name {
            /// All values, in the order of their definition.
            $visibility const ALL: [Self; [$($text),+].len()] = [$(Self::$value),+];

            /// Returns the text of the value.
            $visibility const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$value => $text,)+
                }
            }
        }

        impl $crate::labels::Label for $name {
            const VALUES: &'static [Self] = &Self::ALL;

            fn text(self) -> &'static str {
                self.as_str()
            }

            fn index(self) -> usize {
                self as usize
            }
        }
    };
}
