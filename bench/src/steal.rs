//! What others take of the processors, where those are virtual: rounds in which it was much tell more of them than of us.

/// Reads the system's account of it.
#[derive(Default)]
pub(crate) struct Neighbours {
    stolen: u64,
    all: u64,
}

impl Neighbours {
    /// The part of all processors' time that they took since they were last asked about.
    pub(crate) fn took(&mut self) -> f64 {
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let ticks = |text: &str| text.parse::<u64>().unwrap_or_default();
        // "cpu", then user, nice, system, idle, iowait, irq, softirq and steal; what follows is part of these.
        let times: Vec<u64> = stat.split_whitespace().skip(1).take(8).map(ticks).collect();
        let now = Self {
            stolen: times.get(7).copied().unwrap_or_default(),
            all: times.iter().sum(),
        };
        let took = (now.stolen - self.stolen) as f64 / (now.all - self.all).max(1) as f64;
        *self = now;
        took
    }
}
