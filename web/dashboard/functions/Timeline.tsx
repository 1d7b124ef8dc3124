import { Timeline as Line, Text } from '@mantine/core';
import type { ReactNode } from 'react';
import { RelativeTime } from '../../ui/RelativeTime.tsx';
import { exactTime, useNow } from '../../ui/time.ts';
import { isOver, type Run } from './queries.ts';
import { runStates, spellTime, triggerWords } from './words.ts';

type Step = { key: string; title: string; at: string | null; color: string; text?: ReactNode };

/** How a run went, step by step, from the queue to its end. */
export function Timeline({ run }: { run: Run }) {
  const nowMs = useNow();
  const steps = stepsOf(run, nowMs);
  return (
    <Line bulletSize={14} lineWidth={2} active={steps.length - (isOver(run) ? 1 : 2)}>
      {steps.map(({ key, title, at, color, text }) => (
        <Line.Item key={key} title={title} color={color} lineVariant={at === null ? 'dashed' : 'solid'}>
          {at !== null && (
            <Text size="sm" c="dimmed">
              {exactTime(at)}
            </Text>
          )}
          {text !== undefined && (
            <Text size="sm" className="wrap">
              {text}
            </Text>
          )}
        </Line.Item>
      ))}
    </Line>
  );
}

function stepsOf(run: Run, nowMs: number): Step[] {
  const {
    queued_at: queued,
    not_before: notBefore,
    started_at: began,
    ended_at: ended,
    earlier_attempts: earlier,
  } = run;
  const steps: Step[] = [
    { key: 'queued', title: 'Queued', at: queued, color: 'gray', text: triggerWords(run.trigger) },
  ];
  for (const { attempt, ended_at: at, error } of earlier) {
    const text = `${error.code}: ${error.message}`;
    steps.push({ key: `attempt ${attempt}`, title: `Attempt ${attempt} ended`, at, color: 'orange', text });
  }
  const isAnother = earlier.length > 0;
  if (run.state === 'waiting') {
    const isLater = Date.parse(notBefore) > nowMs;
    steps.push({
      ...{ key: 'waiting', at: null, color: 'yellow' },
      title: isAnother ? `Waits for attempt ${run.attempt + 1}` : 'Waits for its turn',
      ...(isLater && { text: <RelativeTime at={notBefore} /> }),
    });
    return steps;
  }
  if (began !== null) {
    const waitedMs = Date.parse(began) - Date.parse(queued);
    const title = isAnother ? `Attempt ${run.attempt} began` : 'Began';
    // One whose node was lost goes on in another attempt, without a new beginning.
    const isResumed = isAnother && earlier.at(-1)!.ended_at > began;
    if (isResumed) {
      steps.splice(1, 0, { key: 'began', title: 'Began', at: began, color: 'trellis' });
    } else {
      const text = !isAnother && waitedMs > 1_000 ? `after ${spellTime(waitedMs)} in the queue` : undefined;
      steps.push({ key: 'began', title, at: began, color: 'trellis', ...(text && { text }) });
    }
  }
  const { label, color } = runStates[run.state];
  if (ended === null) {
    const forMs = began === null ? 0 : nowMs - Date.parse(began);
    steps.push({
      key: 'running',
      title: label,
      at: null,
      color,
      ...(forMs > 1_000 && { text: `for ${spellTime(forMs)}` }),
    });
    return steps;
  }
  const tookMs = began === null ? undefined : Date.parse(ended) - Date.parse(began);
  const text = tookMs === undefined ? undefined : `after ${spellTime(tookMs)}`;
  steps.push({ key: 'ended', title: label, at: ended, color, ...(text && { text }) });
  return steps;
}
