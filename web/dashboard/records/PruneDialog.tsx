import { Alert, Button, Group, Modal, Progress, Skeleton, Stack, Table, Text } from '@mantine/core';
import { IconAlertTriangle, IconCheck, IconPlayerStop } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { Copyable } from '../../ui/Copyable.tsx';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { counted, spellSize } from '../../ui/size.ts';
import { type Extent, type PruneReceipt, usePruneRun } from './prune-run.ts';
import { consumersQuery, type DatasetAt, estimateQuery } from './queries.ts';

/** Up to which record, and what it is called. */
export type PruneTarget = { cursor: string; name: string };

/** Lets payloads go: what would go first, then its progress, then the receipt. */
export function PruneDialog({
  environment,
  at,
  target,
  onClose,
}: {
  environment: string;
  at: DatasetAt;
  target: PruneTarget;
  onClose: () => void;
}) {
  const estimate = useQuery(estimateQuery(environment, { at, untilCursor: target.cursor }));
  const run = usePruneRun(environment, { at, untilCursor: target.cursor });
  const hasBegun = run.done !== undefined;
  return (
    <Modal
      opened
      onClose={onClose}
      title={`Prune up to ${target.name}`}
      closeOnClickOutside={!hasBegun}
      closeOnEscape={!run.isRunning}
      withCloseButton={!run.isRunning}
      closeButtonProps={{ 'aria-label': 'Close' }}
    >
      {run.receipt !== undefined ? (
        <Receipt receipt={run.receipt} target={target} onClose={onClose} />
      ) : hasBegun && estimate.data !== undefined ? (
        <Running run={run} estimate={estimate.data} onClose={onClose} />
      ) : (
        <Loaded query={estimate} loading={<Waiting />}>
          {(extent) => (
            <Question
              environment={environment}
              at={at}
              extent={extent}
              isBeginning={run.isRunning}
              onGo={() => run.go(extent)}
              onClose={onClose}
            />
          )}
        </Loaded>
      )}
    </Modal>
  );
}

function Question({
  environment,
  at,
  extent,
  isBeginning,
  onGo,
  onClose,
}: {
  environment: string;
  at: DatasetAt;
  extent: Extent;
  isBeginning: boolean;
  onGo: () => void;
  onClose: () => void;
}) {
  const { data: consumers = [] } = useQuery(consumersQuery(environment, at));
  const behind = consumers.filter(
    (one) => one.model === at.model && one.variant === at.variant && one.behind > 0,
  );
  if (extent.count === 0) {
    return (
      <Stack>
        <Text>There is nothing to prune: up to here no record has a payload any more.</Text>
        <Group justify="flex-end">
          <Button variant="default" onClick={onClose} data-autofocus>
            Close
          </Button>
        </Group>
      </Stack>
    );
  }
  return (
    <Stack>
      <Text>
        This removes the payloads of <b>{counted(extent.count, 'record')}</b>,{' '}
        <b>{spellSize(extent.bytes)}</b> as they are stored, this one included.
      </Text>
      <Text size="sm" c="dimmed">
        IDs, times and cursors stay, and nothing is deleted at the provider. A payload comes back when its
        record is saved again, and in no other way.
      </Text>
      {behind.length > 0 && (
        <Alert color="orange" icon={<IconAlertTriangle size={18} />} title="Not everybody has read them">
          {behind.map(({ name, behind: count }) => (
            <Text key={name} size="sm">
              <b>{name}</b> has {counted(count, 'change')} of this dataset still to take.
            </Text>
          ))}
        </Alert>
      )}
      <Group justify="flex-end">
        <Button variant="default" onClick={onClose} data-autofocus>
          Keep them
        </Button>
        <Button color="red" onClick={onGo} loading={isBeginning}>
          Prune {counted(extent.count, 'record')}
        </Button>
      </Group>
    </Stack>
  );
}

function Running({
  run,
  estimate,
  onClose,
}: {
  run: ReturnType<typeof usePruneRun>;
  estimate: Extent;
  onClose: () => void;
}) {
  const { done = 0, total, error } = run;
  return (
    <Stack>
      <Text aria-live="polite">
        {done.toLocaleString()} of {counted(total, 'record')} pruned
      </Text>
      <Progress
        value={Math.min(100, (done / Math.max(total, 1)) * 100)}
        animated={run.isRunning}
        color={error === null ? 'trellis' : 'red'}
        size="lg"
        aria-label="Records pruned"
      />
      {error !== null && (
        <>
          <FaultNotice error={error} onRetry={() => run.go(estimate)} />
          <Text size="sm" c="dimmed">
            What was pruned so far stays pruned. Trying again goes on from here.
          </Text>
        </>
      )}
      <Group justify="flex-end">
        {run.isRunning ? (
          <Button
            variant="default"
            leftSection={<IconPlayerStop size={16} />}
            onClick={run.stop}
            loading={run.isStopping}
          >
            Stop
          </Button>
        ) : (
          <Button variant="default" onClick={onClose}>
            Leave it at that
          </Button>
        )}
      </Group>
    </Stack>
  );
}

function Receipt({
  receipt,
  target,
  onClose,
}: {
  receipt: PruneReceipt;
  target: PruneTarget;
  onClose: () => void;
}) {
  const seconds = (receipt.tookMs / 1000).toLocaleString(undefined, { maximumFractionDigits: 1 });
  const facts = [
    ['Records', receipt.count.toLocaleString()],
    ['Payloads', spellSize(receipt.bytes)],
    [receipt.isWhole ? 'Up to' : 'Not reached', target.name],
    ['Took', `${seconds} s`],
  ];
  return (
    <Stack>
      <Alert
        color={receipt.isWhole ? 'green' : 'orange'}
        icon={receipt.isWhole ? <IconCheck size={18} /> : <IconPlayerStop size={18} />}
        title={receipt.isWhole ? 'Pruned' : 'Stopped before the end'}
      >
        {receipt.isWhole
          ? 'The payloads are gone. The audit log has a receipt of each portion.'
          : 'The oldest records are pruned, the others were left as they are. The same prune again goes on from here.'}
      </Alert>
      <Table layout="fixed">
        <Table.Tbody>
          {facts.map(([name, value]) => (
            <Table.Tr key={name}>
              <Table.Th w={110} fw={400} c="dimmed">
                {name}
              </Table.Th>
              <Table.Td className="wrap">{value}</Table.Td>
            </Table.Tr>
          ))}
          <Table.Tr>
            <Table.Th fw={400} c="dimmed">
              Cursor
            </Table.Th>
            <Table.Td>
              <Copyable value={target.cursor} what="the cursor" />
            </Table.Td>
          </Table.Tr>
        </Table.Tbody>
      </Table>
      <Group justify="flex-end">
        <Button onClick={onClose} data-autofocus>
          Done
        </Button>
      </Group>
    </Stack>
  );
}

function Waiting() {
  return (
    <Stack role="status" aria-label="Counting">
      <Skeleton h={48} />
      <Skeleton h={40} />
      <Skeleton h={36} w="60%" ml="auto" />
    </Stack>
  );
}
