import { Alert, Button, Group, Progress, Skeleton, Stack, Table, Text } from '@mantine/core';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useEffect, useRef, useState } from 'react';
import { Copyable } from '../../ui/Copyable.tsx';
import { Dialog } from '../../ui/Dialog.tsx';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { IconAlertTriangle, IconCheck, IconPlayerStop } from '../../ui/icons.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { counted, formatSize } from '../../ui/size.ts';
import { useFocusIfLost } from '../../ui/use-focus-if-lost.ts';
import { AnchorLink } from '../links.tsx';
import { useEnvironment } from '../shell/environment.ts';
import {
  consumersQuery,
  type DatasetAt,
  estimatePrune,
  estimateQuery,
  portionSize,
  prunePortion,
} from './queries.ts';

/** The last record to prune, and its name. */
export type PruneTarget = { cursor: string; name: string };

/** Prunes payloads: the estimate, then the progress, then the receipt. */
export function PruneDialog({
  at,
  target,
  onClose,
}: {
  at: DatasetAt;
  target: PruneTarget;
  onClose: () => void;
}) {
  const environment = useEnvironment();
  const estimate = useQuery(estimateQuery(environment, { at, untilCursor: target.cursor }));
  const run = usePruneRun(environment, { at, untilCursor: target.cursor });
  const hasBegun = run.done !== undefined;
  const part = run.receipt !== undefined ? 'receipt' : hasBegun ? 'progress' : 'question';
  // The button that was used is no longer there.
  const body = useFocusIfLost<HTMLDivElement>(part);
  return (
    <Dialog
      opened
      onClose={onClose}
      title={`Prune up to ${target.name}`}
      closeOnClickOutside={!hasBegun}
      closeOnEscape={!run.isRunning}
      withCloseButton={!run.isRunning}
    >
      <div ref={body} tabIndex={-1} className="unmarked">
        {run.receipt !== undefined ? (
          <Receipt receipt={run.receipt} target={target} onClose={onClose} />
        ) : hasBegun && estimate.data !== undefined ? (
          <Running run={run} estimate={estimate.data} onClose={onClose} />
        ) : (
          <Loaded query={estimate} loading={<Waiting />}>
            {(extent) => (
              <Question
                at={at}
                extent={extent}
                isBeginning={run.isRunning}
                onGo={() => run.go(extent)}
                onClose={onClose}
              />
            )}
          </Loaded>
        )}
      </div>
    </Dialog>
  );
}

function Question({
  at,
  extent,
  isBeginning,
  onGo,
  onClose,
}: {
  at: DatasetAt;
  extent: Extent;
  isBeginning: boolean;
  onGo: () => void;
  onClose: () => void;
}) {
  const environment = useEnvironment();
  const { data: consumers = [] } = useQuery(consumersQuery(environment, at));
  const behind = consumers.filter(
    (one) => one.model === at.model && one.variant === at.variant && one.behind > 0,
  );
  if (extent.count === 0) {
    return (
      <Stack>
        <Text>There is nothing to prune. No record up to here has a payload.</Text>
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
        <b>{formatSize(extent.bytes)}</b> of encrypted storage, including this record.
      </Text>
      <Dimmed>
        IDs, times and cursors remain, and nothing is deleted at the provider. A payload is only restored when
        its record is saved again.
      </Dimmed>
      {behind.length > 0 && (
        <Alert
          color="orange"
          icon={<IconAlertTriangle size={18} />}
          title="Some consumers have not read these records"
        >
          {behind.map(({ name, behind: count }) => (
            <Text key={name} size="sm">
              <b>{name}</b> has {counted(count, 'change')} of this dataset to read.
            </Text>
          ))}
        </Alert>
      )}
      <Group justify="flex-end">
        <Button variant="default" onClick={onClose} data-autofocus>
          Cancel
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
          <Dimmed>Records that were pruned remain pruned. A new attempt continues from here.</Dimmed>
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
            Close
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
  const environment = useEnvironment();
  const seconds = (receipt.tookMs / 1000).toLocaleString(undefined, { maximumFractionDigits: 1 });
  const facts = [
    ['Records', receipt.count.toLocaleString()],
    ['Stored, encrypted', formatSize(receipt.bytes)],
    [receipt.isWhole ? 'Up to' : 'Not reached', target.name],
    ['Duration', `${seconds} s`],
  ];
  return (
    <Stack>
      <Alert
        color={receipt.isWhole ? 'green' : 'orange'}
        icon={receipt.isWhole ? <IconCheck size={18} /> : <IconPlayerStop size={18} />}
        title={receipt.isWhole ? 'Pruned' : 'Stopped before the end'}
      >
        {receipt.isWhole ? (
          <>
            The payloads are removed. The{' '}
            <AnchorLink
              inherit
              underline="always"
              to="/$environment/settings"
              params={{ environment }}
              search={{ tab: 'audit' }}
            >
              audit log
            </AnchorLink>{' '}
            {receipt.count > portionSize
              ? `has a receipt for each ${portionSize.toLocaleString()} records.`
              : 'has the receipt.'}
          </>
        ) : (
          'The oldest records are pruned, the others are unchanged. Run the same prune again to continue.'
        )}
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
        <Button onClick={onClose}>Done</Button>
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

type Extent = { count: number; bytes: number };
type PruneReceipt = Extent & {
  tookMs: number;
  /** Whether the prune reached its end without being stopped. */
  isWhole: boolean;
};

/**
 * A prune up to a cursor, in portions. `go` starts it, and continues after a failure: repeating a call is safe, and a
 * new estimate includes the effect of a lost response. It stops after the current portion when it is stopped or the
 * dialog closes.
 */
function usePruneRun(environment: string, { at, untilCursor }: { at: DatasetAt; untilCursor: string }) {
  const queries = useQueryClient();
  const isStopped = useRef(false);
  const total = useRef<Extent>({ count: 0, bytes: 0 });
  const workedMs = useRef(0);
  const [done, setDone] = useState<number>();
  const [isStopping, setStopping] = useState(false);
  useEffect(
    () => () => {
      isStopped.current = true;
    },
    [],
  );

  async function run(estimate: Extent): Promise<PruneReceipt> {
    const startedAt = performance.now();
    isStopped.current = false;
    setStopping(false);
    try {
      const left = done === undefined ? estimate : await estimatePrune(environment, { at, untilCursor });
      if (done === undefined) total.current = estimate;
      let count = Math.max(0, total.current.count - left.count);
      setDone(count);
      let hasMore = left.count > 0;
      while (hasMore && !isStopped.current) {
        const portion = await prunePortion(environment, { at, untilCursor });
        count += portion.count;
        hasMore = portion.has_more;
        setDone(count);
      }
      const standing = hasMore ? await estimatePrune(environment, { at, untilCursor }) : { bytes: 0 };
      const tookMs = workedMs.current + performance.now() - startedAt;
      return { count, bytes: total.current.bytes - standing.bytes, tookMs, isWhole: !hasMore };
    } finally {
      workedMs.current += performance.now() - startedAt;
    }
  }

  const mutation = useMutation({
    mutationFn: run,
    onSettled: () => {
      const { integration, id } = at;
      void queries.invalidateQueries({ queryKey: [environment, 'records', integration, id] });
      void queries.invalidateQueries({ queryKey: [environment, 'connection', integration, id, 'datasets'] });
      void queries.invalidateQueries({ queryKey: [environment, 'progress'] });
    },
  });
  return {
    go: mutation.mutate,
    stop: () => {
      isStopped.current = true;
      setStopping(true);
    },
    isStopping,
    isRunning: mutation.isPending,
    error: mutation.isPending ? null : mutation.error,
    receipt: mutation.data,
    /** The number of pruned records; undefined before the start. */
    done,
    total: total.current.count,
  };
}
