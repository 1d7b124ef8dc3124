import { Button, Card, Group, NumberInput, Stack, Switch, TagsInput, Text, Title } from '@mantine/core';
import { useForm } from '@mantine/form';
import { notifications } from '@mantine/notifications';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { datasetsQuery } from '../connections/queries.ts';
import { type Dataset, type DatasetAt, setDatasetSettings } from './queries.ts';

/** How a dataset compares, guards and keeps its records. */
export function SettingsTab({
  environment,
  at,
  dataset,
  mayWrite,
}: {
  environment: string;
  at: DatasetAt;
  dataset: Dataset;
  mayWrite: boolean;
}) {
  const queries = useQueryClient();
  const form = useForm({
    initialValues: valuesOf(dataset),
    validate: { percent: numberFault, number: numberFault },
  });
  const save = useMutation({
    mutationFn: (values: Values) =>
      setDatasetSettings(environment, {
        at,
        // What nobody touched stays as it is stored: a field shows a share rounded, and others may have set more.
        settings: {
          ...(form.isDirty('ignoreFields') && { ignore_fields: values.ignoreFields }),
          mass_delete: {
            ...(form.isDirty('percent') && { share: values.percent / 100 }),
            ...(form.isDirty('number') && { number: values.number }),
          },
          ...(form.isDirty('keepsPrevious') && { keep_previous: values.keepsPrevious }),
        },
      }),
    onSuccess: async (_, values) => {
      form.setInitialValues(values);
      form.resetDirty(values);
      notifications.show({ message: 'The settings are saved.', color: 'green' });
      await queries.invalidateQueries({ queryKey: datasetsQuery(environment, at).queryKey });
    },
  });
  const { percent, number } = form.values;
  const live = dataset.records;
  const held = Math.max(Math.floor((live * percent) / 100), number) + 1;
  return (
    <form onSubmit={form.onSubmit((values) => save.mutate(values))}>
      <Stack maw={720}>
        {!mayWrite && (
          <Text size="sm" c="dimmed">
            Your role reads these settings; a developer or an owner changes them.
          </Text>
        )}
        <Card>
          <Stack gap="xs">
            <Title order={2}>What the last change changed</Title>
            {mayWrite ? (
              <Switch
                label="Keep the previous payload of a record"
                description="With each change the previous payload is kept, sealed beside the new one, until the next change or until it is pruned. This about doubles the storage."
                {...form.getInputProps('keepsPrevious', { type: 'checkbox' })}
              />
            ) : (
              <Text size="sm">
                {dataset.keep_previous
                  ? 'With each change the payload before is kept.'
                  : 'The payload before a change is not kept.'}
              </Text>
            )}
          </Stack>
        </Card>
        <Card>
          <Stack gap="xs">
            <Title order={2}>What counts as a change</Title>
            <TagsInput
              label="Ignored fields"
              description="Fields at the top level that do not make a record a changed one, such as fetched_at. Enter ends a name."
              placeholder={mayWrite ? 'Add a field' : ''}
              readOnly={!mayWrite}
              maxTags={100}
              {...form.getInputProps('ignoreFields')}
            />
          </Stack>
        </Card>
        <Card>
          <Stack gap="xs">
            <Title order={2}>Guard against mass deletion</Title>
            <Text size="sm" c="dimmed">
              A full sync that went wrong sees few records and would delete the rest. Its deletions are held
              back when they are more than both of these.
            </Text>
            <Group align="flex-end">
              <NumberInput
                label="Share of the live records"
                suffix=" %"
                min={0}
                max={100}
                decimalScale={4}
                readOnly={!mayWrite}
                {...form.getInputProps('percent')}
                flex="1 1 160px"
              />
              <NumberInput
                label="Number of records"
                min={0}
                allowDecimal={false}
                thousandSeparator=","
                readOnly={!mayWrite}
                {...form.getInputProps('number')}
                flex="1 1 160px"
              />
            </Group>
            <Text size="sm">
              {percent >= 100 || held > live
                ? `With ${live.toLocaleString()} live records nothing is ever held back.`
                : `With ${live.toLocaleString()} live records, ${held.toLocaleString()} deletions or more are held back.`}
            </Text>
          </Stack>
        </Card>
        {save.isError && <FaultNotice error={save.error} />}
        {mayWrite && (
          <Group justify="flex-end">
            <Button variant="default" disabled={!form.isDirty()} onClick={() => form.reset()}>
              Undo
            </Button>
            <Button type="submit" disabled={!form.isDirty()} loading={save.isPending}>
              Save
            </Button>
          </Group>
        )}
      </Stack>
    </form>
  );
}

type Values = { ignoreFields: string[]; percent: number; number: number; keepsPrevious: boolean };

/** An empty field is no number. */
function numberFault(value: unknown): string | null {
  return typeof value === 'number' ? null : 'A number, please';
}

function valuesOf(dataset: Dataset): Values {
  return {
    ignoreFields: dataset.ignore_fields,
    percent: Math.round(dataset.mass_delete.share * 1e6) / 1e4,
    number: dataset.mass_delete.number,
    keepsPrevious: dataset.keep_previous,
  };
}
