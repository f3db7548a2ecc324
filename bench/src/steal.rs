//! Steal time: the processor time that the hypervisor gave to other virtual machines. Rounds with much of it are noisy.

/// Measures steal time with `/proc/stat`.
#[derive(Default)]
pub(crate) struct StealTime {
    stolen: u64,
    total: u64,
}

impl StealTime {
    /// Returns the fraction of all processor time that was stolen since the previous call.
    pub(crate) fn since_last(&mut self) -> f64 {
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let ticks = |text: &str| text.parse::<u64>().unwrap_or_default();
        // "cpu", then user, nice, system, idle, iowait, irq, softirq and steal; the rest is included in these.
        let times: Vec<u64> = stat.split_whitespace().skip(1).take(8).map(ticks).collect();
        let now = Self {
            stolen: times.get(7).copied().unwrap_or_default(),
            total: times.iter().sum(),
        };
        let stolen = (now.stolen - self.stolen) as f64 / (now.total - self.total).max(1) as f64;
        *self = now;
        stolen
    }
}
