import { Button, Group, Modal, Stack, TextInput } from '@mantine/core';
import { useForm } from '@mantine/form';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { changeEndpoint, createEndpoint, type Endpoint, type EndpointInput } from './queries.ts';
import { TypesField } from './TypesField.tsx';

/** Makes an endpoint, or changes one. */
export function EndpointDialog({
  environment,
  endpoint,
  onClose,
}: {
  environment: string;
  /** The one to change; undefined makes one. */
  endpoint: Endpoint | undefined;
  onClose: () => void;
}) {
  const queries = useQueryClient();
  const form = useForm<EndpointInput>({
    onValuesChange: () => save.reset(),
    initialValues: {
      url: endpoint?.url ?? '',
      description: endpoint?.description ?? '',
      types: endpoint?.types ?? [],
    },
    validate: { url: (url) => (/^https?:\/\/./.test(url) ? null : 'An address that begins with https://') },
  });
  const save = useMutation({
    mutationFn: (given: EndpointInput) =>
      endpoint === undefined
        ? createEndpoint(environment, given)
        : changeEndpoint(environment, { id: endpoint.id, ...given }),
    onSuccess: async () => {
      await queries.invalidateQueries({ queryKey: [environment, 'endpoints'] });
      onClose();
    },
  });
  return (
    <Modal
      opened
      onClose={onClose}
      size="lg"
      title={endpoint === undefined ? 'Add an endpoint' : 'Edit the endpoint'}
      closeButtonProps={{ 'aria-label': 'Close' }}
    >
      <form onSubmit={form.onSubmit((given) => save.mutate({ ...given, url: given.url.trim() }))}>
        <Stack>
          <TextInput
            label="Address"
            description="Public and https, unless TRELLIS_OUTBOUND_ALLOW says otherwise"
            placeholder="https://app.example.com/trellis"
            required
            data-autofocus
            {...form.getInputProps('url')}
          />
          <TextInput label="Description" maxLength={255} {...form.getInputProps('description')} />
          <TypesField
            environment={environment}
            value={form.values.types}
            onChange={(types) => form.setFieldValue('types', types)}
          />
          {save.isError && <FaultNotice error={save.error} />}
          <Group justify="flex-end">
            <Button variant="default" onClick={onClose}>
              Cancel
            </Button>
            <Button type="submit" loading={save.isPending}>
              {endpoint === undefined ? 'Add it' : 'Save'}
            </Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}
