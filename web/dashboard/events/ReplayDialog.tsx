import { Alert, Checkbox, Group, Select, Text, TextInput } from '@mantine/core';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { FormDialog } from '../../ui/Dialog.tsx';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { localTime } from '../../ui/local-time.ts';
import { useEnvironment } from '../shell/environment.ts';
import { type Endpoint, replayRange } from './queries.ts';

/** Sends the events of a range to an endpoint again, and shows the number that is queued. */
export function ReplayDialog({ endpoints, onClose }: { endpoints: Endpoint[]; onClose: () => void }) {
  const environment = useEnvironment();
  const queries = useQueryClient();
  const [id, setId] = useState(endpoints[0]?.id);
  const [from, setFrom] = useState(() => localTime(new Date(Date.now() - 86_400_000)));
  const [to, setTo] = useState('');
  const [undeliveredOnly, setUndeliveredOnly] = useState(true);
  const [count, setCount] = useState(0);
  const endpoint = endpoints.find((one) => one.id === id);
  const replay = useMutation({
    mutationFn: (given: Endpoint) =>
      replayRange(environment, {
        id: given.id,
        range: {
          from: new Date(from).toISOString(),
          ...(to !== '' && { to: new Date(to).toISOString() }),
          undelivered_only: undeliveredOnly,
        },
        onProgress: setCount,
      }),
    onSettled: async () => {
      await queries.invalidateQueries({ queryKey: [environment, 'deliveries'] });
      await queries.invalidateQueries({ queryKey: [environment, 'endpoints'] });
    },
  });
  const isBackwards = to !== '' && new Date(to) <= new Date(from);
  return (
    <FormDialog
      title="Replay a range"
      size="lg"
      act="Replay"
      cancel={replay.isSuccess ? 'Done' : 'Cancel'}
      attempt={replay}
      button={{ disabled: endpoint === undefined || from === '' || isBackwards }}
      {...(replay.isSuccess && { isDirty: false })}
      onClose={onClose}
      onSubmit={(event) => {
        event?.preventDefault();
        if (endpoint !== undefined) replay.mutate(endpoint);
      }}
    >
      <Dimmed>
        The events of this range are queued again, oldest first, with the same webhook-id. Events from before
        the endpoint existed, or while it was turned off, are included.
      </Dimmed>
      {endpoints.length > 1 ? (
        <Select
          label="Endpoint"
          data={endpoints.map((one) => ({ value: String(one.id), label: one.url }))}
          value={String(id)}
          onChange={(value) => setId(Number(value))}
          allowDeselect={false}
        />
      ) : (
        <Text size="sm" className="wrap" fw={550}>
          {endpoint?.url}
        </Text>
      )}
      <Group align="flex-start">
        <TextInput
          type="datetime-local"
          flex="1 1 220px"
          label="From"
          required
          value={from}
          onChange={({ currentTarget }) => setFrom(currentTarget.value)}
        />
        <TextInput
          type="datetime-local"
          flex="1 1 220px"
          label="To"
          value={to}
          error={isBackwards && 'The end must be after the start.'}
          onChange={({ currentTarget }) => setTo(currentTarget.value)}
        />
      </Group>
      <Text size="xs" c="dimmed">
        In your time zone. If there is no end, the current time is used.
      </Text>
      <Checkbox
        label="Only undelivered events"
        checked={undeliveredOnly}
        onChange={({ currentTarget }) => setUndeliveredOnly(currentTarget.checked)}
      />
      {endpoint?.enabled === false && (
        <Alert color="yellow">
          The endpoint is turned off. Queued events are sent when it is turned on again.
        </Alert>
      )}
      {(replay.isSuccess || replay.isPending) && (
        <Alert color={replay.isSuccess ? 'green' : 'blue'} role="status">
          {replay.isPending ? `${count.toLocaleString()} queued so far` : resultText(count)}
        </Alert>
      )}
    </FormDialog>
  );
}

function resultText(count: number): string {
  if (count === 0) return 'There is nothing to send in this range.';
  return count === 1 ? 'One event is queued.' : `${count.toLocaleString()} events are queued.`;
}
