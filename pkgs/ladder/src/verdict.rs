//! Whether a step helps, judged by measurements.

use serde::Serialize;

/// How many times less CPU time a step takes: the measured value, and the interval of the true one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Gain {
    /// The median of the rounds.
    pub median: f64,
    /// Very likely, it is at least this.
    pub low: f64,
    /// Very likely, it is at most this.
    pub high: f64,
}

impl Gain {
    /// How far this may be from no difference at all, as a fraction.
    pub fn apart(&self) -> f64 {
        self.high.max(1.0 / self.low) - 1.0
    }
}

/// The verdict on a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Less CPU time, by more than noise.
    Helps,
    /// No difference beyond what two processes of one stage might show.
    WithinNoise,
    /// More CPU time, by more than noise.
    CostsMore,
}

impl Verdict {
    /// From the step's gain, and how far apart two processes of one stage are, as a fraction.
    pub fn of(gain: Gain, noise: f64) -> Self {
        let limit = 1.0 + noise;
        if gain.median > limit && gain.low > 1.0 {
            Self::Helps
        } else if gain.median < 1.0 / limit && gain.high < 1.0 {
            Self::CostsMore
        } else {
            Self::WithinNoise
        }
    }

    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Helps => "helps",
            Self::WithinNoise => "within noise",
            Self::CostsMore => "costs more",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_helps_where_its_gain_is_sure_and_more_than_noise() {
        let cases = [
            ((1.50, 1.40, 1.60), 0.02, Verdict::Helps),
            ((1.50, 0.99, 1.60), 0.02, Verdict::WithinNoise),
            ((1.02, 1.01, 1.03), 0.02, Verdict::WithinNoise),
            ((1.03, 1.01, 1.04), 0.02, Verdict::Helps),
            ((1.00, 1.00, 1.00), 0.00, Verdict::WithinNoise),
            ((0.97, 0.96, 0.99), 0.02, Verdict::CostsMore),
            ((0.99, 0.97, 0.99), 0.02, Verdict::WithinNoise),
            ((0.90, 0.80, 1.01), 0.02, Verdict::WithinNoise),
        ];
        for ((median, low, high), noise, verdict) in cases {
            let gain = Gain { median, low, high };
            assert_eq!(Verdict::of(gain, noise), verdict, "{gain:?} {noise}");
        }
    }

    #[test]
    fn noise_is_as_far_as_two_of_a_kind_may_be_apart() {
        let apart = |low, high| (Gain { median: 1.0, low, high }.apart() * 100.0).round();
        assert_eq!([apart(1.0, 1.0), apart(0.99, 1.04), apart(0.8, 1.04)], [0.0, 4.0, 25.0]);
    }
}
