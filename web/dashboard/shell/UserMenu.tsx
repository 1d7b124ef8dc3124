import { ActionIcon, Box, Menu, SegmentedControl, Text, useMantineColorScheme } from '@mantine/core';
import { IconLogout, IconUserCircle } from '@tabler/icons-react';
import { useSuspenseQuery } from '@tanstack/react-query';
import { meQuery } from '../sign-in/queries.ts';
import { useSignOut } from './sign-out.ts';

export function UserMenu() {
  const { data: me } = useSuspenseQuery(meQuery());
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  const { leave } = useSignOut();
  return (
    <Menu width={264} position="bottom-end">
      <Menu.Target>
        <ActionIcon variant="subtle" color="gray" size="lg" radius="xl" aria-label="Your account">
          <IconUserCircle size={24} stroke={1.6} />
        </ActionIcon>
      </Menu.Target>
      <Menu.Dropdown>
        <Box px="sm" py={6}>
          <Text fw={600} size="sm" truncate>
            {me.name}
          </Text>
          <Text size="sm" c="dimmed" truncate>
            {me.email}
          </Text>
        </Box>
        <Menu.Divider />
        <Box px="sm" py={6}>
          <SegmentedControl
            fullWidth
            size="xs"
            aria-label="Colours"
            value={colorScheme}
            onChange={(value) => setColorScheme(value as typeof colorScheme)}
            data={[
              { value: 'light', label: 'Light' },
              { value: 'dark', label: 'Dark' },
              { value: 'auto', label: 'System' },
            ]}
          />
        </Box>
        {me.id !== 'local' && (
          <>
            <Menu.Divider />
            <Menu.Item leftSection={<IconLogout size={16} />} onClick={leave}>
              Sign out
            </Menu.Item>
          </>
        )}
      </Menu.Dropdown>
    </Menu>
  );
}
