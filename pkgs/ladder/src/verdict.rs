//! Whether a step helps, by what was measured.

use serde::Serialize;

/// What a step comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Less CPU time in every round, by more than noise.
    Helps,
    /// No difference that two processes of one stage might not show.
    WithinNoise,
    /// More CPU time in every round, by more than noise.
    CostsMore,
}

impl Verdict {
    /// By the step's `gain` (how many times less CPU time; the median of the rounds), the gains of all rounds, and how
    /// far apart two processes of one stage are, as a part of the whole.
    pub fn of(gain: f64, rounds: &[f64], noise: f64) -> Self {
        let limit = 1.0 + noise;
        if gain > limit && rounds.iter().all(|gain| *gain > 1.0) {
            Self::Helps
        } else if gain < 1.0 / limit && rounds.iter().all(|gain| *gain < 1.0) {
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
    fn a_step_helps_where_every_round_says_so_and_noise_does_not() {
        let cases = [
            (1.50, [1.40, 1.50, 1.60], 0.02, Verdict::Helps),
            (1.50, [0.99, 1.50, 1.60], 0.02, Verdict::WithinNoise),
            (1.02, [1.01, 1.02, 1.03], 0.02, Verdict::WithinNoise),
            (1.03, [1.01, 1.03, 1.04], 0.02, Verdict::Helps),
            (1.00, [1.00, 1.00, 1.00], 0.00, Verdict::WithinNoise),
            (0.97, [0.96, 0.97, 0.99], 0.02, Verdict::CostsMore),
            (0.99, [0.97, 0.99, 0.99], 0.02, Verdict::WithinNoise),
            (0.90, [0.80, 0.90, 1.01], 0.02, Verdict::WithinNoise),
        ];
        for (gain, rounds, noise, verdict) in cases {
            assert_eq!(Verdict::of(gain, &rounds, noise), verdict, "{gain} {rounds:?} {noise}");
        }
    }
}
