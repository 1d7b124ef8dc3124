import { Alert, Anchor, Badge, Card, Group, Loader, Stack, Text, Title } from '@mantine/core';
import { IconPlayerPlay } from '@tabler/icons-react';
import { Fault } from '../../api/client.ts';
import { EmptyState } from '../../ui/EmptyState.tsx';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { JsonBlock } from '../../ui/JsonBlock.tsx';
import { FunctionLink } from './FunctionLink.tsx';
import type { ActionAnswer, FunctionAt } from './queries.ts';
import { spellTime } from './words.ts';

export type CallState =
  | { is: 'idle' }
  | { is: 'running' }
  | { is: 'cancelled' }
  | { is: 'failed'; error: unknown }
  | { is: 'answered'; answer: ActionAnswer };

/** What came of the call of an action. */
export function ActionOutcome({
  environment,
  at,
  state,
  onRetry,
}: {
  environment: string;
  at: FunctionAt;
  state: CallState;
  onRetry: () => void;
}) {
  const toRuns = (
    <Anchor
      size="sm"
      renderRoot={(looks) => (
        <FunctionLink environment={environment} at={at} search={{ tab: 'runs' }} {...looks} />
      )}
    >
      Its runs, with their logs
    </Anchor>
  );
  switch (state.is) {
    case 'idle':
      return (
        <Card>
          <EmptyState icon={<IconPlayerPlay size={26} />} title="Not called yet">
            Choose a connection, give the input, and call it. The output stands here.
          </EmptyState>
        </Card>
      );
    case 'running':
      return (
        <Card role="status" aria-label="Running">
          <Group>
            <Loader size="sm" />
            <Text>The action runs</Text>
          </Group>
        </Card>
      );
    case 'cancelled':
      return (
        <Alert color="gray" title="Cancelled" role="status">
          <Stack gap="xs" align="flex-start">
            <Text size="sm">The action is ended. What it did at the provider until then is done.</Text>
            {toRuns}
          </Stack>
        </Alert>
      );
    case 'failed':
      return (
        <Stack>
          <FaultNotice error={state.error} onRetry={onRetry} />
          {state.error instanceof Fault && state.error.payload !== undefined && (
            <Card component="section" aria-label="What it threw">
              <Title order={2} mb="xs">
                What it threw
              </Title>
              <JsonBlock value={state.error.payload} what="what it threw" />
            </Card>
          )}
          {toRuns}
        </Stack>
      );
    case 'answered':
      return (
        <Card component="section" aria-label="Output">
          <Group justify="space-between" mb="sm" gap="xs">
            <Group gap="xs">
              <Title order={2}>Output</Title>
              <Badge color="green">Succeeded</Badge>
              <Text size="sm" c="dimmed">
                {spellTime(state.answer.tookMs)}
              </Text>
            </Group>
            {toRuns}
          </Group>
          <JsonBlock value={state.answer.output} what="the output" />
        </Card>
      );
  }
}
