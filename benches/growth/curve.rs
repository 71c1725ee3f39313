//! Curves, and their laws.

/// The upper limit of a cost's growth.
#[derive(Clone, Copy)]
pub(crate) enum Law {
    /// The cost does not depend on the size.
    Constant,
    /// The cost grows with the logarithm of the size.
    Logarithm,
    /// The cost is proportional to the size.
    Linear,
}

impl Law {
    /// Returns the largest exponent of a fitted power that satisfies the law. A logarithm's
    /// exponent over two decades is about 0.1. The rest allows for the processor's caches: an
    /// access outside of them costs five times as much, which is an exponent of 0.35 over two
    /// decades. An algorithm of a worse class exceeds this, since its exponent is larger by a half
    /// or by one.
    fn exponent_max(self) -> f64 {
        match self {
            Self::Constant => 0.15,
            Self::Logarithm => 0.45,
            Self::Linear => 1.35,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Constant => "constant",
            Self::Logarithm => "logarithm",
            Self::Linear => "linear",
        }
    }
}

/// The cost of one operation by size.
pub(crate) struct Series {
    name: &'static str,
    /// `None` if the series is shown but not checked.
    law: Option<Law>,
    points: Vec<(f64, f64)>,
}

impl Series {
    pub(crate) fn new(name: &'static str, law: Option<Law>, points: Vec<(f64, f64)>) -> Self {
        Self { name, law, points }
    }

    /// Returns the exponent of the power function that fits best.
    fn exponent(points: &[(f64, f64)]) -> f64 {
        Self::power(points).0
    }

    /// Returns the exponent and the logarithm of the factor of the power function that fits best.
    fn power(points: &[(f64, f64)]) -> (f64, f64) {
        let logs: Vec<_> = points.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
        let count = logs.len() as f64;
        let mean_x = logs.iter().map(|(x, _)| x).sum::<f64>() / count;
        let mean_y = logs.iter().map(|(_, y)| y).sum::<f64>() / count;
        let covariance: f64 = logs.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
        let exponent = covariance / logs.iter().map(|(x, _)| (x - mean_x).powi(2)).sum::<f64>();
        (exponent, mean_y - exponent * mean_x)
    }

    /// Returns the fit at the last point, and by which part a point differs from its fit at most.
    fn fit(&self) -> (f64, f64) {
        let (exponent, factor) = Self::power(&self.points);
        let at = |x: f64| (factor + exponent * x.ln()).exp();
        let residuals = self.points.iter().map(|(x, y)| (y / at(*x) - 1.0).abs());
        let last = self.points.last().map_or(f64::NAN, |(x, _)| at(*x));
        (last, residuals.fold(0.0, f64::max))
    }

    /// Returns the exponent over all points, and over the last points, where a fixed cost hides
    /// less of the growth.
    fn exponents(&self) -> (f64, f64) {
        let end = self.points.get(self.points.len().saturating_sub(END)..).unwrap_or_default();
        (Self::exponent(&self.points), Self::exponent(end))
    }

    fn holds(&self) -> bool {
        let Some(law) = self.law else { return true };
        let (overall, end) = self.exponents();
        overall <= law.exponent_max() && end <= law.exponent_max() + END_SLACK
    }
}

/// The number of last points that are also checked by themselves. Their exponent may exceed the
/// limit by [`END_SLACK`], since they are few.
const END: usize = 3;
const END_SLACK: f64 = 0.2;

/// Series of one operation.
pub(crate) struct Curve {
    pub(crate) title: &'static str,
    pub(crate) x: &'static str,
    pub(crate) y: &'static str,
    pub(crate) series: Vec<Series>,
}

impl Curve {
    /// Creates a curve from its title, x and y, the series, and the values of all series at each
    /// size.
    pub(crate) fn new<const SERIES: usize>(
        (title, x, y): (&'static str, &'static str, &'static str),
        series: [(&'static str, Option<Law>); SERIES],
        sizes: impl IntoIterator<Item = (usize, [f64; SERIES])>,
    ) -> Self {
        let mut points: [Vec<(f64, f64)>; SERIES] = std::array::from_fn(|_| Vec::new());
        for (size, values) in sizes {
            for (points, value) in points.iter_mut().zip(values) {
                points.push((size as f64, value));
            }
        }
        let series = series.into_iter().zip(points);
        let series = series.map(|((name, law), points)| Series::new(name, law, points)).collect();
        Self { title, x, y, series }
    }

    /// Prints the curve and returns whether every law holds.
    pub(crate) fn report(&self, name: &str) -> bool {
        println!("\n{name}: {} ({}, by {})", self.title, self.y, self.x);
        for series in &self.series {
            let points = series.points.iter().map(|(x, y)| format!("{x:.0}: {}", figure(*y)));
            println!("  {}: {}", series.name, points.collect::<Vec<_>>().join(", "));
            let Some(law) = series.law else { continue };
            let (overall, end) = series.exponents();
            let verdict = if series.holds() { "holds" } else { "GROWS FASTER" };
            let (last, residual) = series.fit();
            let (last, percent) = (figure(last), residual * 100.0);
            println!(
                "    fit: {last} at the end, as x^{overall:.2}, within {percent:.0} %; over the last points x^{end:.2}; law: {}, at most x^{:.2}: {verdict}",
                law.as_str(),
                law.exponent_max()
            );
        }
        self.series.iter().all(Series::holds)
    }
}

/// Returns the value below which `percent` of the sorted values are.
pub(crate) fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().unwrap_or(f64::NAN)
}

/// Formats a value with about three significant digits.
fn figure(value: f64) -> String {
    match value {
        _ if value >= 100.0 => format!("{value:.0}"),
        _ if value >= 1.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}
