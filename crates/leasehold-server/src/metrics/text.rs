//! Encodes metrics in Prometheus' text format, version 0.0.4.

use std::fmt::{Display, Write as _};

use leasehold::measure::Histogram;

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Counter,
    Gauge,
    /// A histogram of durations: recorded in microseconds, written in seconds.
    Durations,
    /// A histogram of whole numbers.
    Sizes,
}

impl Type {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Durations | Self::Sizes => "histogram",
        }
    }
}

/// A page of metrics. Label values are the service's own words, so that none needs escaping.
#[derive(Default)]
pub(super) struct Page {
    text: String,
}

/// Writes the values of one metric.
pub(super) struct Values<'p> {
    page: &'p mut Page,
    name: &'static str,
    unit: f64,
}

impl Page {
    /// Writes the header of a metric, and returns the writer of its values.
    pub(super) fn metric(&mut self, name: &'static str, kind: Type, help: &str) -> Values<'_> {
        let type_name = kind.as_str();
        let _ = write!(
            self.text,
            "# HELP {name} {help}\n# TYPE {name} {type_name}\n"
        );
        let unit = if kind == Type::Durations { 1e6 } else { 1.0 };
        let page = self;
        Values { page, name, unit }
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }
}

/// Names and values of labels, such as `[("store", "memory")]`.
pub(super) type Labels<'a> = &'a [(&'a str, &'a str)];

impl Values<'_> {
    pub(super) fn value(&mut self, labels: Labels<'_>, value: impl Display) {
        self.line("", labels, None, value);
    }

    /// Writes the buckets, the sum and the count of a histogram.
    pub(super) fn histogram(&mut self, labels: Labels<'_>, histogram: &Histogram) {
        let (buckets, count, sum) = histogram.read();
        for (bound, count) in buckets {
            let bound = (bound as f64 / self.unit).to_string();
            self.line("_bucket", labels, Some(&bound), count);
        }
        self.line("_bucket", labels, Some("+Inf"), count);
        self.line("_sum", labels, None, sum as f64 / self.unit);
        self.line("_count", labels, None, count);
    }

    fn line(&mut self, suffix: &str, labels: Labels<'_>, bound: Option<&str>, value: impl Display) {
        let text = &mut self.page.text;
        text.push_str(self.name);
        text.push_str(suffix);
        let labels = labels
            .iter()
            .copied()
            .chain(bound.map(|bound| ("le", bound)));
        for (index, (label, value)) in labels.enumerate() {
            let separator = if index == 0 { '{' } else { ',' };
            let _ = write!(text, "{separator}{label}=\"{value}\"");
        }
        if text.ends_with('"') {
            text.push('}');
        }
        let _ = writeln!(text, " {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_encoded_in_the_text_format() {
        let mut page = Page::default();
        let mut sizes = page.metric("sizes", Type::Sizes, "How many.");
        let histogram = Histogram::new(&[1, 10]);
        histogram.add(3);
        sizes.histogram(&[("of", "x")], &histogram);
        let spans = Histogram::new(&[50, 2_500_000]);
        spans.add(1_500_000);
        page.metric("spans", Type::Durations, "How long.")
            .histogram(&[], &spans);
        page.metric("now", Type::Gauge, "How much.").value(&[], 7);
        assert_eq!(
            page.into_text(),
            "# HELP sizes How many.\n# TYPE sizes histogram\n\
             sizes_bucket{of=\"x\",le=\"1\"} 0\nsizes_bucket{of=\"x\",le=\"10\"} 1\n\
             sizes_bucket{of=\"x\",le=\"+Inf\"} 1\nsizes_sum{of=\"x\"} 3\nsizes_count{of=\"x\"} 1\n\
             # HELP spans How long.\n# TYPE spans histogram\n\
             spans_bucket{le=\"0.00005\"} 0\nspans_bucket{le=\"2.5\"} 1\n\
             spans_bucket{le=\"+Inf\"} 1\nspans_sum 1.5\nspans_count 1\n\
             # HELP now How much.\n# TYPE now gauge\nnow 7\n"
        );
    }
}
