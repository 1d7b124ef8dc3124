import { Card, Stack, Title } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { LoadingRows } from '../../ui/Loading.tsx';
import { counted } from '../../ui/size.ts';
import { useNow } from '../../ui/time.ts';
import { Waterfall } from '../../ui/Waterfall.tsx';
import type { Operation } from '../activity/queries.ts';
import { AnchorLink } from '../links.tsx';
import { useEnvironment } from '../shell/environment.ts';
import { callsQuery, isOver, type Run } from './queries.ts';
import { formatDuration } from './words.ts';

/** More rows do not help to find the slow ones. */
const maxShown = 100;

/** When a run called the provider and saved records, and for how long. */
export function RunCalls({ run }: { run: Run }) {
  const environment = useEnvironment();
  const query = useQuery({ ...callsQuery(environment, run), enabled: run.connection_id !== null });
  const nowMs = useNow();
  if (run.connection_id === null || run.started_at === null) return null;
  return (
    <Card component="section" aria-label="Calls">
      <Title order={2} mb="sm">
        Calls
      </Title>
      <Loaded query={query} loading={<LoadingRows rows={3} height={24} />}>
        {(calls) => {
          if (calls.length === 0)
            return (
              <Dimmed>
                {isOver(run)
                  ? 'The activity log has no calls of this run.'
                  : 'The run has made no calls yet.'}
              </Dimmed>
            );
          const shown = calls.slice(-maxShown);
          const fromMs = Math.min(startOf(shown[0]!), Date.parse(run.started_at ?? run.queued_at));
          const ends = shown.map(({ created_at: at }) => Date.parse(at));
          return (
            <Stack gap="xs">
              <Waterfall
                label="Calls of the run"
                fromMs={fromMs}
                untilMs={Math.max(...ends, run.ended_at === null ? nowMs : Date.parse(run.ended_at))}
                format={formatDuration}
                spans={shown.map((call) => ({
                  key: call.id,
                  label: (
                    <AnchorLink
                      inherit
                      title={wordsOf(call)}
                      to="/$environment/activity"
                      params={{ environment }}
                      search={{
                        integration: run.integration_id,
                        connection: run.connection_id ?? undefined,
                        operation: call.id,
                      }}
                    >
                      {wordsOf(call)}
                    </AnchorLink>
                  ),
                  color: call.status === 'failed' ? 'red.6' : call.type === 'proxy' ? 'trellis.5' : 'teal.6',
                  startMs: startOf(call),
                  durationMs: call.duration_ms ?? 0,
                }))}
              />
              {calls.length > shown.length && (
                <Dimmed>
                  The last {shown.length} of {counted(calls.length, 'call')}.
                </Dimmed>
              )}
            </Stack>
          );
        }}
      </Loaded>
    </Card>
  );
}

/** An operation is logged when it ends. */
const startOf = ({ created_at: at, duration_ms: ms }: Operation) => Date.parse(at) - (ms ?? 0);

const verbs: Record<string, string> = {
  'records.save': 'Save',
  'records.update': 'Update',
  'records.delete': 'Delete',
};

/** "GET /v4/spreadsheets", "404 GET /v4/spreadsheets", "Save 2 of Row". */
function wordsOf({
  type,
  method,
  path,
  details,
  status,
  http_status: httpStatus,
  error_code: code,
}: Operation) {
  const verb = verbs[type];
  if (verb === undefined)
    return [status === 'failed' && (httpStatus ?? code), method, path].filter(Boolean).join(' ');
  const counts = ['added', 'updated', 'unchanged', 'count'].map((name) => Number(details[name] ?? 0));
  const count = counts.reduce((sum, one) => sum + one, 0);
  return `${verb} ${count.toLocaleString()} of ${String(details.model)}`;
}
