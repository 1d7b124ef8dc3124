import { Checkbox, Group, Radio, Stack } from '@mantine/core';
import { useSuspenseQuery } from '@tanstack/react-query';
import { meQuery } from '../../sign-in/queries.ts';
import type { Grant, Role } from './queries.ts';

const roles: { role: Role; label: string; about: string }[] = [
  {
    role: 'viewer',
    label: 'Viewer',
    about: 'Sees everything there but credentials, signing keys and values; changes nothing',
  },
  { role: 'developer', label: 'Developer', about: 'Does everything there, makes keys too' },
  { role: 'owner', label: 'Owner', about: 'Does everything everywhere, and manages people and environments' },
];

/** A role, and for all but owners the environments that it is for. */
export function GrantFields({ value, onChange }: { value: Grant; onChange: (grant: Grant) => void }) {
  const { data: me } = useSuspenseQuery(meQuery());
  return (
    <Stack>
      <Radio.Group
        label="Role"
        value={value.role}
        onChange={(role) => onChange({ ...value, role: role as Role })}
      >
        <Stack gap="xs" mt={6}>
          {roles.map(({ role, label, about }) => (
            <Radio key={role} value={role} label={label} description={about} />
          ))}
        </Stack>
      </Radio.Group>
      {value.role !== 'owner' && (
        <Checkbox.Group
          label="Environments"
          value={value.environments}
          error={value.environments.length === 0 && 'At least one'}
          onChange={(environments) => onChange({ ...value, environments })}
        >
          <Group gap="md" my={6}>
            {me.environments.map(({ name }) => (
              <Checkbox key={name} value={name} label={name} />
            ))}
          </Group>
        </Checkbox.Group>
      )}
    </Stack>
  );
}

export const isWhole = ({ role, environments }: Grant): boolean =>
  role === 'owner' || environments.length > 0;
