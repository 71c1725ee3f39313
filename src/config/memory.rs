//! The byte budgets that the configuration does not set, where the memory of this process has a
//! limit.
//!
//! Each budget gets a part of the limit, if that is less than its default. The parts add up to a
//! little more than a half: caches three eighths (one cache half of that), unread responses an
//! eighth, compressed segments a sixteenth of what caches have. The rest is for connections,
//! for what is being sent, and for what the allocator keeps (`docs/decisions/own-overload.md`).

use crate::config::Config;

impl Config {
    /// Reduces the byte budgets to their parts of `limit` bytes.
    pub(super) fn fit_memory(&mut self, limit: u64) {
        let sixteenth = bytes(limit / 16);
        let cache = &mut self.cache;
        cache.total_bytes_max = cache.total_bytes_max.min(sixteenth.saturating_mul(6));
        cache.resource_bytes_max = cache.resource_bytes_max.min(sixteenth.saturating_mul(3));
        let responses = &mut self.server.response_bytes_max;
        *responses = (*responses).min(sixteenth.saturating_mul(2));
    }

    /// Returns the sum of the byte budgets.
    pub fn budget_bytes(&self) -> u64 {
        let budgets =
            [self.cache.total_bytes_max, self.cache.gzip_bytes_max, self.server.response_bytes_max];
        budgets.into_iter().fold(0, |sum, budget| sum.saturating_add(budget as u64))
    }
}

fn bytes(limit: u64) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use crate::config::file::ConfigFile;
    use crate::config::resolve::Overrides;

    fn resolved(limit: u64, yaml: &str) -> Config {
        let head = "apiVersion: weir.dev/v1alpha1\nkind: WeirConfiguration\n";
        let file = ConfigFile::parse("test", &format!("{head}{yaml}")).unwrap();
        let memory_limit = Some(limit);
        Config::resolve(file, Overrides { memory_limit, ..Overrides::default() }).unwrap()
    }

    #[test]
    fn budgets_are_parts_of_the_limit() {
        let config = resolved(512 << 20, "");
        let cache = &config.cache;
        let mebibytes = [
            cache.total_bytes_max,
            cache.resource_bytes_max,
            cache.history_bytes_max,
            cache.gzip_bytes_max,
            config.server.response_bytes_max,
        ];
        assert_eq!(mebibytes.map(|bytes| bytes >> 20), [192, 96, 12, 12, 64]);
        assert!(config.budget_bytes() < (512 << 20) * 5 / 8);
    }

    #[test]
    fn a_large_limit_leaves_the_defaults() {
        assert_eq!(resolved(64 << 30, ""), Config::default());
    }

    #[test]
    fn what_is_set_stays() {
        let config = resolved(512 << 20, "cache: {resourceBytesMax: 300Mi}\n");
        assert_eq!(config.cache.resource_bytes_max, 300 << 20);
        // The budget that contains it grows with it.
        assert_eq!(config.cache.total_bytes_max, 300 << 20);
    }
}
