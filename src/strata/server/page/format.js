// Numbers as people read them.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });

export const known = (value) => typeof value === "number" && Number.isFinite(value);

export const count = (value) => (known(value) ? whole.format(value) : "–");

/** Tokens per second. */
export const speed = (value) => (known(value) ? (value >= 100 ? whole : tenth).format(value) : "–");

export function percent(share) {
  if (!known(share)) return "–";
  const value = 100 * share;
  if (value > 0 && value < 0.05) return "under 0.1 %";
  return `${value > 0 && value < 10 ? tenth.format(value) : whole.format(value)} %`;
}

/** A duration in seconds. */
export function duration(seconds) {
  if (!known(seconds)) return "–";
  if (seconds < 0.995) return `${whole.format(1000 * seconds)} ms`;
  if (seconds < 60) return `${tenth.format(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${whole.format(Math.floor(seconds % 60))} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** Bytes, in binary units. */
export function bytes(value) {
  if (!known(value)) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let step = 0;
  while (value >= 1024 && step < units.length - 1) {
    value /= 1024;
    step += 1;
  }
  return `${(step < 2 || value >= 100 ? whole : tenth).format(value)} ${units[step]}`;
}

export const clock = (ms) => new Date(ms).toLocaleTimeString("en-GB");

/** Whether a text has one of something: `plural(2, "token")` is "2 tokens". */
export const plural = (value, noun) => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;

/** The heading under which a moment falls in a list. */
export function dayGroup(ms, now = Date.now()) {
  const midnight = new Date(now).setHours(0, 0, 0, 0);
  if (ms >= midnight) return "Today";
  if (ms >= midnight - 86_400_000) return "Yesterday";
  if (ms >= midnight - 7 * 86_400_000) return "This week";
  return "Earlier";
}
