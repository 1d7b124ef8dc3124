import { useSyncExternalStore } from 'react';

const steps: [Intl.RelativeTimeFormatUnit, number][] = [
  ['year', 31_536_000],
  ['month', 2_592_000],
  ['week', 604_800],
  ['day', 86_400],
  ['hour', 3_600],
  ['minute', 60],
];
const relative = new Intl.RelativeTimeFormat(undefined, { numeric: 'auto' });
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' });

/**
 * "3 minutes ago", "in 2 hours", "just now". Times in ms since 1970. The age of a past time counts full units, and a future
 * time is rounded: 59 minutes and 50 seconds are "in 1 hour".
 */
export function relativeTime(atMs: number, nowMs: number): string {
  const seconds = (atMs - nowMs) / 1000;
  for (const [index, [unit, size]] of steps.entries()) {
    const finer = steps[index + 1]?.[1] ?? 1;
    if (seconds <= -size) return relative.format(Math.trunc(seconds / size), unit);
    if (Math.round(seconds / finer) * finer >= size) return relative.format(Math.round(seconds / size), unit);
  }
  return Math.abs(seconds) < 10 ? 'just now' : relative.format(Math.trunc(seconds), 'second');
}

export function exactTime(at: string): string {
  return exact.format(new Date(at));
}

let nowMs = Date.now();
const listeners = new Set<() => void>();
let timer: ReturnType<typeof setInterval> | undefined;

/** The current time, updated every ten seconds for all components. */
export function useNow(): number {
  return useSyncExternalStore(subscribe, () => nowMs);
}

function subscribe(listener: () => void): () => void {
  nowMs = Date.now();
  listeners.add(listener);
  timer ??= setInterval(() => {
    nowMs = Date.now();
    for (const notify of listeners) notify();
  }, 10_000);
  return () => {
    listeners.delete(listener);
    if (listeners.size > 0) return;
    clearInterval(timer);
    timer = undefined;
  };
}
