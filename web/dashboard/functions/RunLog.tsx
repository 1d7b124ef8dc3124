import { Badge, Box, Button, Card, Group, Select, Stack, Text, TextInput, Title } from '@mantine/core';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useEffect, useLayoutEffect, useRef, useState } from 'react';
import { CopyButton } from '../../ui/CopyButton.tsx';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { IconSearch } from '../../ui/icons.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { LoadingRows } from '../../ui/Loading.tsx';
import { counted } from '../../ui/size.ts';
import { useEnvironment } from '../shell/environment.ts';
import { isOver, linesQuery, type Run, type RunLine } from './queries.ts';

/** The number of lines shown first, from the end: more than a screen, and few enough to render quickly. */
const linesPerStep = 500;
/** The last lines of a run may arrive shortly after its end. */
const lateMs = 1_500;
const levels = { warn: ['warn', 'error'], error: ['error'] } as const;
const levelColors: Record<string, string> = { error: 'red', warn: 'yellow', info: 'teal', debug: 'gray' };

/** The log of a run, updated live. */
export function RunLog({ run }: { run: Run }) {
  const environment = useEnvironment();
  const queries = useQueryClient();
  const hasEnded = isOver(run);
  const query = useQuery({
    ...linesQuery(environment, run.id, queries),
    refetchInterval: hasEnded ? false : 1_000,
  });
  const { refetch } = query;
  const isCutOff = query.fetchStatus === 'paused' || query.failureCount > 0;
  useEffect(() => {
    if (!hasEnded) return;
    const timer = setTimeout(() => void refetch(), lateMs);
    return () => clearTimeout(timer);
  }, [hasEnded, refetch]);
  const [level, setLevel] = useState<keyof typeof levels>();
  const [text, setText] = useState('');
  const fitting = (query.data ?? []).filter(
    (line) =>
      (level === undefined || levels[level].some((one) => one === line.level)) &&
      line.message.toLowerCase().includes(text.toLowerCase()),
  );
  return (
    <Card component="section" aria-label="Log">
      <Group justify="space-between" mb="sm" gap="xs">
        <Group gap="xs">
          <Title order={2}>Log</Title>
          {!hasEnded && (
            <Badge color={isCutOff ? 'yellow' : 'teal'} variant="dot">
              {isCutOff ? 'The service cannot be reached' : 'Live'}
            </Badge>
          )}
        </Group>
        {query.data !== undefined && query.data.length > 0 && (
          <Group gap="xs">
            <TextInput
              size="xs"
              w={170}
              aria-label="Search the log"
              placeholder="Search the log"
              leftSection={<IconSearch size={14} />}
              value={text}
              onChange={({ currentTarget: { value } }) => setText(value)}
            />
            <Select
              size="xs"
              w={150}
              aria-label="Level"
              placeholder="All levels"
              clearable
              data={[
                { value: 'warn', label: 'Warnings and errors' },
                { value: 'error', label: 'Errors' },
              ]}
              value={level ?? null}
              onChange={(next) => setLevel((next ?? undefined) as keyof typeof levels | undefined)}
            />
            {(level !== undefined || text !== '') && (
              <Text size="xs" c="dimmed" role="status">
                {fitting.length.toLocaleString()} of {counted(query.data.length, 'line')}
              </Text>
            )}
            <CopyButton value={fitting.map(textOf).join('\n')} what="the log" />
          </Group>
        )}
      </Group>
      <Loaded query={query} loading={<LoadingRows rows={1} height={120} />}>
        {(lines) => {
          if (fitting.length > 0) return <Lines lines={fitting} isLive={!hasEnded} />;
          return (
            <Dimmed>
              {lines.length > 0
                ? 'No line matches.'
                : hasEnded
                  ? 'The run wrote no log lines.'
                  : 'No log lines yet.'}
            </Dimmed>
          );
        }}
      </Loaded>
    </Card>
  );
}

function Lines({ lines, isLive }: { lines: RunLine[]; isLive: boolean }) {
  const [max, setMax] = useState(linesPerStep);
  const box = useRef<HTMLDivElement>(null);
  const follows = useRef(isLive);
  const last = lines.at(-1)?.position;
  // biome-ignore lint/correctness/useExhaustiveDependencies: moved where a line has come
  useLayoutEffect(() => {
    const { current } = box;
    if (current !== null && follows.current) current.scrollTop = current.scrollHeight;
  }, [last]);
  const hidden = Math.max(0, lines.length - max);
  const shown = lines.slice(hidden);
  return (
    <Stack gap="xs">
      {hidden > 0 && (
        <Button variant="default" size="compact-sm" w="fit-content" onClick={() => setMax(max * 4)}>
          Show earlier ({counted(hidden, 'line')})
        </Button>
      )}
      <Box
        ref={box}
        className="log"
        role="log"
        aria-label="Lines"
        tabIndex={0}
        onScroll={({ currentTarget: { scrollTop, scrollHeight, clientHeight } }) => {
          follows.current = isLive && scrollHeight - scrollTop - clientHeight < 24;
        }}
      >
        {shown.map((line, at) => (
          <div key={line.position} className="log-line">
            {line.attempt !== (shown[at - 1] ?? line).attempt && (
              <div className="log-break">Attempt {line.attempt}</div>
            )}
            <span className="log-time">{timeOf(line.at)}</span>
            <span
              className="log-level"
              style={{ color: `var(--mantine-color-${levelColors[line.level] ?? 'gray'}-light-color)` }}
            >
              {line.level}
            </span>
            <span className="log-text">{line.message}</span>
          </div>
        ))}
      </Box>
    </Stack>
  );
}

const clock = new Intl.DateTimeFormat(undefined, {
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
  fractionalSecondDigits: 3,
  hour12: false,
});
const timeOf = (at: string): string => clock.format(new Date(at));
const textOf = ({ at, level, message }: RunLine): string => `${at} ${level} ${message}`;
