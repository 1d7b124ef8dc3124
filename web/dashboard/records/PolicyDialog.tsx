import {
  Alert,
  Button,
  Group,
  Modal,
  NumberInput,
  type NumberInputProps,
  Stack,
  Switch,
  Text,
} from '@mantine/core';
import { useForm } from '@mantine/form';
import { IconAlertTriangle } from '@tabler/icons-react';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { IntegrationSelect } from '../integrations/IntegrationSelect.tsx';
import { type PolicyTerms, wordsOf } from './policy-words.ts';
import { type Policy, policiesQuery, setPolicy } from './queries.ts';

/** Stands for the environment where an integration could stand; no integration has this ID. */
const everywhere = '*';

/** Sets a policy; what it will do is said while it is being written. */
export function PolicyDialog({
  environment,
  policy,
  taken,
  integrations,
  onClose,
}: {
  environment: string;
  /** Undefined for a new one. */
  policy: Policy | undefined;
  /** Places that have a policy; null is the environment. */
  taken: (string | null)[];
  integrations: { unique_key: string; display_name: string }[];
  onClose: () => void;
}) {
  const isFree = (place: string | null) => policy !== undefined || !taken.includes(place);
  const free = integrations.filter(({ unique_key: key }) => isFree(key));
  const others = isFree(null) ? [{ value: everywhere, label: 'Every other integration' }] : [];
  const first = others[0]?.value ?? free[0]?.unique_key ?? null;
  const queries = useQueryClient();
  const form = useForm<Values>({
    initialValues: {
      place: policy === undefined ? first : (policy.provider_config_key ?? everywhere),
      pruneAfter: policy === undefined ? 30 : (policy.prune_after_days ?? ''),
      removeAfter: policy?.remove_tombstones_after_days ?? '',
      waits: policy?.wait_for_consumers ?? true,
    },
  });
  const terms = termsOf(form.values);
  const { place } = form.values;
  const doesNothing = terms.prune_after_days === null && terms.remove_tombstones_after_days === null;
  const save = useMutation({
    mutationFn: () =>
      setPolicy(environment, {
        ...terms,
        ...(place !== null && place !== everywhere && { provider_config_key: place }),
      }),
    onSuccess: async () => {
      await queries.invalidateQueries({ queryKey: policiesQuery(environment).queryKey });
      onClose();
    },
  });
  return (
    <Modal
      opened
      onClose={onClose}
      size="lg"
      title={policy === undefined ? 'Add a policy' : 'Edit the policy'}
      closeButtonProps={{ 'aria-label': 'Close' }}
    >
      <form onSubmit={form.onSubmit(() => save.mutate())}>
        <Stack>
          <IntegrationSelect
            label="For"
            integrations={free}
            others={others}
            allowDeselect={false}
            disabled={policy !== undefined}
            {...form.getInputProps('place')}
          />
          <Group align="flex-start">
            <Days label="Prune payloads after" {...form.getInputProps('pruneAfter')} />
            <Days label="Remove deleted records after" {...form.getInputProps('removeAfter')} />
          </Group>
          <Switch
            label="Wait for consumers"
            description="Nothing goes that the slowest consumer of its dataset has not taken"
            {...form.getInputProps('waits', { type: 'checkbox' })}
          />
          <Alert
            color={doesNothing ? 'gray' : 'orange'}
            icon={<IconAlertTriangle size={18} />}
            title={
              doesNothing ? 'A policy names at least one number of days' : 'What this does, every minute'
            }
          >
            <Stack gap={6} aria-live="polite">
              {!doesNothing &&
                wordsOf(terms).map((sentence) => (
                  <Text key={sentence} size="sm">
                    {sentence}
                  </Text>
                ))}
              {!doesNothing && (
                <Text size="sm" fw={600}>
                  What is older than that today goes within minutes, and cannot be undone here.
                </Text>
              )}
            </Stack>
          </Alert>
          {save.isError && <FaultNotice error={save.error} />}
          <Group justify="flex-end">
            <Button variant="default" onClick={onClose}>
              Cancel
            </Button>
            <Button
              type="submit"
              color="red"
              disabled={doesNothing || place === null}
              loading={save.isPending}
            >
              Set the policy
            </Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}

function Days(props: NumberInputProps) {
  return (
    <NumberInput
      min={1}
      max={36_500}
      allowDecimal={false}
      suffix=" days"
      placeholder="never"
      flex="1 1 200px"
      {...props}
    />
  );
}

/** An empty field says "never". */
type Values = { place: string | null; pruneAfter: number | ''; removeAfter: number | ''; waits: boolean };

function termsOf({ pruneAfter, removeAfter, waits }: Values): PolicyTerms {
  return {
    prune_after_days: pruneAfter === '' ? null : pruneAfter,
    remove_tombstones_after_days: removeAfter === '' ? null : removeAfter,
    wait_for_consumers: waits,
  };
}
