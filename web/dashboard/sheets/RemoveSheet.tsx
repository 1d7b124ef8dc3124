import { Radio, Stack, Text } from '@mantine/core';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { useState } from 'react';
import { Confirm } from '../../ui/Confirm.tsx';
import type { At } from '../connections/queries.ts';
import { removeSheet } from './queries.ts';
import { type ChosenSheet, nameOf } from './settings.ts';

/** Asks what becomes of the records, and follows the sheet no longer. */
export function RemoveSheet({
  environment,
  at,
  sheet,
  onClose,
}: {
  environment: string;
  at: At;
  /** Undefined keeps the question closed. */
  sheet: ChosenSheet | undefined;
  onClose: () => void;
}) {
  const queries = useQueryClient();
  const navigate = useNavigate();
  const [records, setRecords] = useState<'kept' | 'removed'>('kept');
  const remove = useMutation({
    mutationFn: ({ variant }: ChosenSheet) => removeSheet(environment, { at, variant, records }),
    onSuccess: async () => {
      await navigate({ to: '/$environment/connections/$integration/$id', params: { environment, ...at } });
      await queries.invalidateQueries({ queryKey: [environment] });
    },
  });
  return (
    <Confirm
      title="Remove the sheet?"
      act={records === 'kept' ? 'Remove the sheet' : 'Remove sheet and records'}
      given={sheet}
      mutation={remove}
      onClose={onClose}
    >
      <Stack>
        <Text>
          {sheet === undefined ? 'It' : nameOf(sheet)} is read no longer. Nothing is changed in the
          spreadsheet.
        </Text>
        <Radio.Group
          label="Its records"
          value={records}
          onChange={(next) => setRecords(next === 'removed' ? next : 'kept')}
        >
          <Stack gap="xs" mt="xs">
            <Radio
              value="kept"
              label="Keep them as they are"
              description="They can still be read and pruned, and change no more."
            />
            <Radio
              value="removed"
              label="Remove them"
              description="All at once, without a deletion for each; readers get an event that the dataset was emptied."
            />
          </Stack>
        </Radio.Group>
      </Stack>
    </Confirm>
  );
}
